//! The other transfers over our path, as the controller sees them: who decides, and how much of it is ours.

use godwit_tune::{Decision, Setting};

use crate::{
    context::Context,
    group::{Group, View, share},
};

/// Looks of the controller between two looks at the company.
const EVERY: u32 = 2;

/// A group that we belong to, or nobody.
pub(crate) struct Company {
    group: Option<Group>,
    view: View,
    looks: u32,
}

/// What is new.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    /// We follow, and another total was decided.
    Total(Setting),
    /// Members came or went: our part is another one.
    Parts,
    /// We decide from now on.
    Leads,
}

const ALONE: View = View {
    leads: true,
    members: 1,
    others_bytes: 0,
    part: 1.0,
    total: None,
};

impl Company {
    pub(crate) const fn none() -> Self {
        Self {
            group: None,
            view: ALONE,
            looks: 0,
        }
    }

    /// Those who move over `path` too. Where they cannot be found each is on its own.
    pub(crate) fn of(path: &str, weight: f64) -> Self {
        let joined = Group::join(path, weight).and_then(|mut group| {
            let view = group.exchange(0)?;
            Ok((group, view))
        });
        match joined {
            Ok((group, view)) => Self {
                group: Some(group),
                view,
                looks: 0,
            },
            Err(error) => {
                tracing::debug!(%error, "transfers over the same path are not looked for");
                Self::none()
            }
        }
    }

    /// Tells what we have moved, and looks at the others.
    pub(crate) fn look(&mut self, bytes: u64, context: &Context) -> Option<Change> {
        self.looks = self.looks.wrapping_add(1);
        if !self.looks.is_multiple_of(EVERY) {
            return None;
        }
        let before = self.view;
        match self.group.as_mut()?.exchange(bytes) {
            Ok(view) => self.view = view,
            Err(error) => {
                self.leave(&error, context);
                return (!before.leads).then_some(Change::Leads);
            }
        }
        change(&before, &self.view)
    }

    /// Tells the others what was decided.
    pub(crate) fn tell(&mut self, total: Setting, context: &Context) {
        if !self.view.leads {
            return;
        }
        if let Some(group) = &self.group
            && let Err(error) = group.decide(total)
        {
            self.leave(&error, context);
        }
    }

    fn leave(&mut self, error: &std::io::Error, context: &Context) {
        context.note(format!(
            "other transfers over this path are looked for no more: {error}"
        ));
        self.group = None;
        self.view = View {
            others_bytes: self.view.others_bytes,
            ..ALONE
        };
    }

    /// The total that another decided, where another decides.
    pub(crate) fn followed(&self) -> Option<Setting> {
        self.view.total.filter(|_| !self.view.leads)
    }

    pub(crate) const fn is_alone(&self) -> bool {
        self.view.members == 1
    }

    pub(crate) const fn others_bytes(&self) -> u64 {
        self.view.others_bytes
    }

    pub(crate) fn share(&self, total: Setting) -> Setting {
        share(total, self.view.part)
    }

    pub(crate) fn words(&self) -> String {
        format!(
            "{:.0} % of it here, {} transfers over this path",
            self.view.part * 100.0,
            self.view.members
        )
    }

    /// Somebody else's decision, as if it were ours.
    pub(crate) fn reason_to_follow(total: Setting) -> Decision {
        Decision::new(total, format!("{total} for all, decided by another"))
    }
}

fn change(before: &View, now: &View) -> Option<Change> {
    match (before.leads, now.leads) {
        (false, true) => Some(Change::Leads),
        (_, false) if now.total != before.total => now.total.map(Change::Total),
        _ if (now.part - before.part).abs() > f64::EPSILON => Some(Change::Parts),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_told_once_and_by_weight() {
        let view = |leads, part, total| View {
            leads,
            part,
            total,
            ..ALONE
        };
        let (a, b) = (Some(Setting::new(1, 8)), Some(Setting::new(1, 9)));
        let follows = view(false, 0.5, a);
        assert_eq!(change(&follows, &follows), None);
        assert_eq!(
            change(&follows, &view(false, 0.5, b)),
            Some(Change::Total(Setting::new(1, 9)))
        );
        assert_eq!(change(&follows, &view(false, 0.25, a)), Some(Change::Parts));
        assert_eq!(change(&follows, &view(true, 1.0, b)), Some(Change::Leads));
        let leads = view(true, 1.0, a);
        assert_eq!(change(&leads, &view(true, 1.0, b)), None);
        assert_eq!(change(&leads, &view(true, 0.5, a)), Some(Change::Parts));
    }
}
