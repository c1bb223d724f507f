//! Checks whether a configuration is a valid path.

use super::config::{
    Alteration, Corruption, CrossTraffic, Discipline, Duplication, Loss, PathConfig, Pattern,
    Queue, QueueLimit, Reordering,
};

/// A field with a value that makes no path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct InvalidPath {
    /// The field, as it is spelled in the configuration: `queue.discipline.red.max_p`.
    pub field: String,
    /// What is wrong with its value.
    pub reason: &'static str,
}

fn invalid(field: impl Into<String>, reason: &'static str) -> InvalidPath {
    InvalidPath {
        field: field.into(),
        reason,
    }
}

impl PathConfig {
    /// Checks all values, those of the schedule included.
    ///
    /// # Errors
    /// [`InvalidPath`], for the first field that is wrong.
    pub fn check(&self) -> Result<(), InvalidPath> {
        if self.rate_bps == Some(0) {
            return Err(invalid("rate_bps", "must be at least 1"));
        }
        self.queue.check("queue")?;
        self.loss.check("loss")?;
        check_reordering("reordering", self.reordering)?;
        check_duplication("duplication", self.duplication)?;
        check_corruption("corruption", self.corruption)?;
        check_cross("cross_traffic", &self.cross_traffic)?;
        for (index, change) in self.schedule.iter().enumerate() {
            change.to.check(&format!("schedule[{index}].to"))?;
        }
        let needs_rate = !self.cross_traffic.is_empty()
            || (self.schedule.iter()).any(|c| matches!(&c.to, Alteration::CrossTraffic(_)));
        if needs_rate && self.rate_bps.is_none() {
            return Err(invalid("cross_traffic", "needs rate_bps"));
        }
        Ok(())
    }
}

impl Alteration {
    /// Checks all values; `field` is the prefix for messages.
    ///
    /// # Errors
    /// [`InvalidPath`], for the first field that is wrong.
    pub fn check(&self, field: &str) -> Result<(), InvalidPath> {
        match self {
            Alteration::RateBps(0) => {
                Err(invalid(format!("{field}.rate_bps"), "must be at least 1"))
            }
            Alteration::Loss(loss) => loss.check(&format!("{field}.loss")),
            Alteration::Queue(queue) => queue.check(&format!("{field}.queue")),
            Alteration::CrossTraffic(sources) => {
                check_cross(&format!("{field}.cross_traffic"), sources)
            }
            Alteration::Reordering(reordering) => {
                check_reordering(&format!("{field}.reordering"), *reordering)
            }
            Alteration::Duplication(duplication) => {
                check_duplication(&format!("{field}.duplication"), *duplication)
            }
            Alteration::Corruption(corruption) => {
                check_corruption(&format!("{field}.corruption"), *corruption)
            }
            Alteration::RateBps(_)
            | Alteration::DelayNs(_)
            | Alteration::Cut
            | Alteration::Heal => Ok(()),
        }
    }
}

impl Queue {
    fn check(&self, field: &str) -> Result<(), InvalidPath> {
        if matches!(self.limit, QueueLimit::Packets(0) | QueueLimit::Bytes(0)) {
            return Err(invalid(format!("{field}.limit"), "must be at least 1"));
        }
        let Discipline::Red(red) = self.discipline else {
            return Ok(());
        };
        let field = |name: &str| format!("{field}.discipline.red.{name}");
        if !(red.min > 0.0 && red.min < red.max && red.max.is_finite()) {
            return Err(invalid(field("min"), "must be above 0 and below max"));
        }
        if !(red.max_p > 0.0 && red.max_p <= 1.0) {
            return Err(invalid(field("max_p"), "must be above 0 and at most 1"));
        }
        if !(red.weight > 0.0 && red.weight <= 1.0) {
            return Err(invalid(field("weight"), "must be above 0 and at most 1"));
        }
        if red.mean_packet_bytes == 0 {
            return Err(invalid(field("mean_packet_bytes"), "must be at least 1"));
        }
        Ok(())
    }
}

impl Loss {
    fn check(&self, field: &str) -> Result<(), InvalidPath> {
        let check = |name: &str, value| ratio(&format!("{field}.{name}"), value);
        match *self {
            Loss::None => Ok(()),
            Loss::Random { ratio } => check("random.ratio", ratio),
            Loss::GilbertElliott {
                to_bad,
                to_good,
                bad,
                good,
            } => {
                check("gilbert_elliott.to_bad", to_bad)?;
                check("gilbert_elliott.to_good", to_good)?;
                check("gilbert_elliott.bad", bad)?;
                check("gilbert_elliott.good", good)
            }
        }
    }
}

fn check_reordering(field: &str, reordering: Option<Reordering>) -> Result<(), InvalidPath> {
    reordering.map_or(Ok(()), |r| ratio(&format!("{field}.ratio"), r.ratio))
}

fn check_duplication(field: &str, duplication: Option<Duplication>) -> Result<(), InvalidPath> {
    duplication.map_or(Ok(()), |d| ratio(&format!("{field}.ratio"), d.ratio))
}

fn check_corruption(field: &str, corruption: Option<Corruption>) -> Result<(), InvalidPath> {
    corruption.map_or(Ok(()), |c| ratio(&format!("{field}.ratio"), c.ratio))
}

fn check_cross(field: &str, sources: &[CrossTraffic]) -> Result<(), InvalidPath> {
    for (index, source) in sources.iter().enumerate() {
        let field = |name: &str| format!("{field}[{index}].{name}");
        if source.rate_bps == 0 {
            return Err(invalid(field("rate_bps"), "must be at least 1"));
        }
        if source.packet_bytes == 0 {
            return Err(invalid(field("packet_bytes"), "must be at least 1"));
        }
        if let Pattern::OnOff { on_ns, off_ns, .. } = source.pattern
            && (on_ns == 0 || off_ns == 0)
        {
            return Err(invalid(field("pattern"), "times must be at least 1"));
        }
    }
    Ok(())
}

fn ratio(field: &str, value: f64) -> Result<(), InvalidPath> {
    if (0.0..=1.0).contains(&value) {
        return Ok(());
    }
    Err(invalid(field, "must lie between 0 and 1"))
}
