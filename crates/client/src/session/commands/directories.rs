//! What is in a directory of a server, and what is at a path, in the best way that the server has.
//!
//! ```text
//!   MLSD ─ not known, or of no known shape ─► CWD, LIST -a ─ not understood ─► NLST -a, each name
//!                                                                              looked at
//! ```
//! The older commands are asked for the working directory, not for a path: vsftpd answers `LIST
//! path` with an empty listing and 226 where there is no such path, and with the name itself where
//! it may not be read. After CWD it says which. They are asked with `-a`, since vsftpd hides names
//! with a leading dot otherwise; a listing that has `.` then shows that the server took it for an
//! option.

use std::sync::Arc;

use godwit_engine::data::{Sink, TransferJob};
use godwit_proto::{
    Command, FtpPath, Reply,
    error::{FailureKind, failure_kind},
    facts::{FactType, Facts},
    list_line,
    timestamp::Timestamp,
};

use super::{
    files::{Found, SizeReply, TOGETHER_MAX, found_in},
    listing::{
        self, DirectoryEntry, LineSink, LineSplitter, ListingEnd, ListingForm, NameReader,
        WholeListing,
    },
};
use crate::{
    endpoint::capabilities::{Lack, Observed},
    error::{Error, Result},
    session::{Session, TransferPlan},
};

/// What came of one way to list.
enum ListAttempt {
    ListingShape(WholeListing, ListingShape),
    /// Another way may do, and why this one does not.
    NoSuchWay(Error),
}

/// What is to be known of a listing beside its names.
struct ListingShape {
    is_empty: bool,
    lists_itself: bool,
    /// The server says how many lines it has sent.
    is_counted: bool,
}

impl ListingShape {
    /// Nothing came, and nothing shows that this was all.
    fn may_be_cut(&self) -> bool {
        self.is_empty && !self.is_counted
    }
}

impl Session {
    /// Lists a directory. Lines go to `outlet` as they come, those of a listing that breaks off
    /// too.
    pub(crate) async fn list(
        &mut self,
        directory: &FtpPath,
        outlet: &mut LineSink,
    ) -> Result<WholeListing> {
        let doing = format!("list {}", self.endpoint.url(directory));
        let endpoint = Arc::clone(&self.endpoint);
        let capabilities = &endpoint.capabilities;
        let mut misread = None;
        if !capabilities.lacks(Lack::Mlsd) {
            let command = Command::Mlsd(Some(directory.clone()));
            match self
                .try_list(command, ListingForm::Facts, &doing, outlet)
                .await?
            {
                ListAttempt::ListingShape(whole, listed) => {
                    self.check_itself(&listed, Observed::MlsdListsItself, &doing)?;
                    if !listed.is_empty
                        && !listed.lists_itself
                        && capabilities.has(Observed::MlsdListsItself)
                    {
                        let why = "the line of the directory itself is missing".to_owned();
                        return Err(Error::Listing { doing, why });
                    }
                    if listed.may_be_cut() {
                        self.confirm_empty(directory, ListingForm::Facts, &doing)
                            .await?;
                    }
                    return Ok(whole);
                }
                // What answers so may answer NLST in any way: LIST has to show what is there.
                ListAttempt::NoSuchWay(why @ Error::Listing { .. }) => misread = Some(why),
                ListAttempt::NoSuchWay(why) => {
                    let text = format!("directories are listed by LIST or NLST ({why})");
                    self.learn_lack(Lack::Mlsd, "MLSD", &text);
                }
            }
        }
        let into = self.ask(&Command::Cwd(directory.clone()), &doing).await?;
        match failure_kind(&into) {
            None => {}
            Some(FailureKind::NotSupported) if misread.is_none() => {
                return self.list_by_path(directory, outlet).await;
            }
            Some(_) => return Err(Error::refused(doing, into)),
        }
        if !capabilities.lacks(Lack::List) {
            match self.list_here(ListingForm::Long, &doing, outlet).await? {
                ListAttempt::ListingShape(whole, listed) => {
                    if listed.may_be_cut() {
                        self.confirm_empty(directory, ListingForm::Long, &doing)
                            .await?;
                    }
                    return Ok(whole);
                }
                ListAttempt::NoSuchWay(why) if misread.is_none() => {
                    let text = format!("names are listed by NLST and looked at one by one ({why})");
                    self.learn_lack(Lack::List, "LIST", &text);
                }
                ListAttempt::NoSuchWay(_) => {}
            }
        }
        if let Some(misread) = misread {
            return Err(misread);
        }
        match self.list_here(ListingForm::Names, &doing, outlet).await? {
            ListAttempt::ListingShape(whole, listed) => {
                if listed.may_be_cut() {
                    self.confirm_empty(directory, ListingForm::Names, &doing)
                        .await?;
                }
                Ok(whole)
            }
            ListAttempt::NoSuchWay(why) => Err(why),
        }
    }

    /// A data connection that ends before the first line looks like an empty directory. Another
    /// command has to agree, or the same one where the server has no other.
    async fn confirm_empty(
        &mut self,
        directory: &FtpPath,
        by: ListingForm,
        doing: &str,
    ) -> Result<()> {
        let into = self.ask(&Command::Cwd(directory.clone()), doing).await?;
        match failure_kind(&into) {
            None => {}
            Some(FailureKind::NotSupported) => return Ok(()),
            Some(_) => return Err(Error::refused(doing, into)),
        }
        let forms: &[ListingForm] = match by {
            ListingForm::Facts => &[ListingForm::Long, ListingForm::Names, ListingForm::Facts],
            ListingForm::Long => &[ListingForm::Names, ListingForm::Long],
            ListingForm::Names => &[ListingForm::Names],
        };
        for form in forms {
            let (queue, mut lines) = listing::queue();
            let mut outlet = LineSink::new(queue, 0);
            let tried = match form {
                ListingForm::Facts => {
                    let command = Command::Mlsd(Some(directory.clone()));
                    Box::pin(self.try_list(command, *form, doing, &mut outlet)).await
                }
                _ => Box::pin(self.list_here(*form, doing, &mut outlet)).await,
            };
            match tried {
                Ok(ListAttempt::ListingShape(..)) => {}
                Ok(ListAttempt::NoSuchWay(_)) => continue,
                Err(Error::Refused { .. }) if self.is_usable() => continue,
                Err(error) => return Err(error),
            }
            let mut names = NameReader::new(directory);
            while let Ok(some) = lines.try_recv() {
                let text = some.text()?;
                let Some(first) = names.read(&some, &text).next() else {
                    continue;
                };
                let name = match first {
                    Ok(entry) => String::from_utf8_lossy(&entry.name).into_owned(),
                    Err(bad) => bad.name,
                };
                return Err(Error::Listing {
                    doing: doing.to_owned(),
                    why: format!("{by} has nothing, and {form} has {name:?}"),
                });
            }
            return Ok(());
        }
        Ok(())
    }

    /// Lists the working directory, with names that begin with a dot if that can be had.
    async fn list_here(
        &mut self,
        form: ListingForm,
        doing: &str,
        outlet: &mut LineSink,
    ) -> Result<ListAttempt> {
        let endpoint = Arc::clone(&self.endpoint);
        let capabilities = &endpoint.capabilities;
        let (all, plain) = match form {
            ListingForm::Names => (Command::NlstAll, Command::Nlst(None)),
            _ => (Command::ListAll, Command::List(None)),
        };
        if capabilities.lacks(Lack::ListAll) {
            return self.try_list(plain, form, doing, outlet).await;
        }
        match self.try_list(all, form, doing, outlet).await {
            Ok(ListAttempt::ListingShape(whole, listed)) if listed.lists_itself => {
                self.check_itself(&listed, Observed::AllListsItself, doing)?;
                return Ok(ListAttempt::ListingShape(whole, listed));
            }
            // The server may have taken the option for a name: this is no listing of the directory.
            Ok(ListAttempt::ListingShape(_, listed)) => {
                self.check_itself(&listed, Observed::AllListsItself, doing)?;
            }
            // Another shape, which it has without the option too.
            Ok(ListAttempt::NoSuchWay(why @ Error::Listing { .. })) => {
                return Ok(ListAttempt::NoSuchWay(why));
            }
            Ok(ListAttempt::NoSuchWay(_)) => {}
            // It may have taken the option for a name. ProFTPD says 450 then.
            Err(Error::Refused { reply, .. })
                if self.is_usable() && !matches!(reply.code.get(), 425 | 426 | 451) => {}
            Err(error) => return Err(error),
        }
        let tried = self.try_list(plain, form, doing, outlet).await?;
        if let ListAttempt::ListingShape(_, listed) = &tried
            && !listed.is_empty
        {
            let text = "names with a leading dot may be missing where it lists";
            self.learn_lack(Lack::ListAll, "LIST -a", text);
        }
        Ok(tried)
    }

    /// For servers without CWD. Nothing shows then that an empty listing is that of a directory.
    async fn list_by_path(
        &mut self,
        directory: &FtpPath,
        outlet: &mut LineSink,
    ) -> Result<WholeListing> {
        let doing = format!("list {}", self.endpoint.url(directory));
        let command = Command::Nlst(Some(directory.clone()));
        match self
            .try_list(command, ListingForm::Names, &doing, outlet)
            .await?
        {
            ListAttempt::ListingShape(whole, listed) if !listed.is_empty => Ok(whole),
            ListAttempt::ListingShape(..) => Err(Error::Listing {
                doing,
                why: "nothing came, and the server has no CWD that would show what is there".into(),
            }),
            ListAttempt::NoSuchWay(why) => Err(why),
        }
    }

    /// A server whose listings begin with the directory itself has not read one that is empty.
    fn check_itself(&self, listed: &ListingShape, does: Observed, doing: &str) -> Result<()> {
        if listed.lists_itself {
            self.endpoint.capabilities.record(does);
        }
        match listed.is_empty && !listed.lists_itself && self.endpoint.capabilities.has(does) {
            true => Err(Error::Listing {
                doing: doing.to_owned(),
                why: "nothing came, and other listings had the directory itself".to_owned(),
            }),
            false => Ok(()),
        }
    }

    fn learn_lack(&self, which: Lack, what: &str, consequence: &str) {
        let name = self.endpoint.name();
        let text = format!("{name}: no {what}: {consequence}");
        self.endpoint
            .capabilities
            .learn(which, &self.context.reporter, text);
    }

    async fn try_list(
        &mut self,
        command: Command,
        form: ListingForm,
        doing: &str,
        outlet: &mut LineSink,
    ) -> Result<ListAttempt> {
        let cutter = LineSplitter::new(outlet.again(), form);
        let sink = cutter.clone();
        let is_by_path = matches!(command, Command::Mlsd(_) | Command::Nlst(Some(_)));
        let outcome = self
            .transfer(TransferPlan::listing(command, doing), |_| {
                TransferJob::Receive(Sink::Stream(Box::new(sink)))
            })
            .await;
        if let Some(why) = cutter.refused() {
            let doing = doing.to_owned();
            return Err(Error::Listing { doing, why });
        }
        let said = outcome.reply;
        match outcome.result {
            Ok(()) => {}
            Err(error) if error.is_unsupported() => {
                return Ok(ListAttempt::NoSuchWay(error));
            }
            // After CWD the server says in these words that the directory is empty. After some
            // lines they mean that the listing broke off.
            Err(Error::Refused { reply, .. })
                if !is_by_path
                    && self.is_usable()
                    && !cutter.has_bytes()
                    && list_line::is_of_emptiness(&reply, form == ListingForm::Names) => {}
            Err(error) => return Err(error),
        }
        Ok(match cutter.finish(doing, said.as_ref())? {
            ListingEnd::WholeListing(whole) => {
                let listed = ListingShape {
                    is_empty: whole.is_empty(),
                    lists_itself: cutter.lists_itself(),
                    is_counted: said.as_ref().and_then(list_line::announced_count).is_some(),
                };
                ListAttempt::ListingShape(whole, listed)
            }
            ListingEnd::Misunderstood(line) => ListAttempt::NoSuchWay(Error::Listing {
                doing: doing.to_owned(),
                why: format!("the line {line:?} is not understood"),
            }),
        })
    }

    /// What is at `path`: MLST, or what older commands tell. Links are followed. Where their
    /// answers do not tell whether there is anything, its directory is listed.
    ///
    /// # Errors
    /// It is there, and the server does not say what it is.
    pub(crate) async fn stat(&mut self, path: &FtpPath) -> Result<Found> {
        self.stat_or_list_parent(path, false).await
    }

    /// The same; a name that is `listed` is known to be there.
    pub(crate) async fn stat_or_list_parent(
        &mut self,
        path: &FtpPath,
        listed: bool,
    ) -> Result<Found> {
        let refusal = match self.try_stat(path).await? {
            Ok(found) => return Ok(found),
            Err(refusal) => refusal,
        };
        let found = match listed {
            true => None,
            false => self.find_in_parents(path).await?,
        };
        found.ok_or_else(|| {
            let doing = format!("look at {}", self.endpoint.url(path));
            Error::refused(doing, refusal)
        })
    }

    /// What MLST or older commands tell; `Err` for an answer that may mean that nothing is there,
    /// or something that may not be looked at.
    async fn try_stat(&mut self, path: &FtpPath) -> Result<std::result::Result<Found, Reply>> {
        let doing = format!("look at {}", self.endpoint.url(path));
        if !self.endpoint.capabilities.lacks(Lack::Mlst) {
            let reply = self.ask(&Command::Mlst(Some(path.clone())), &doing).await?;
            match failure_kind(&reply) {
                None => {
                    let found = found_in(reply.body());
                    return match found.is_link() {
                        true => self.stat_by_size(path).await,
                        false => Ok(Ok(found)),
                    };
                }
                Some(FailureKind::NotFound | FailureKind::NotADirectory) => {
                    return Ok(Ok(Found::Missing));
                }
                Some(FailureKind::NotSupported) => {
                    let instead = "SIZE and CWD tell what they can";
                    self.lesson(Lack::Mlst, &reply, "MLST", instead);
                }
                Some(FailureKind::Other) if reply.code.get() == 550 => return Ok(Err(reply)),
                Some(_) => return Err(Error::refused(doing, reply)),
            }
        }
        self.stat_by_size(path).await
    }

    /// What older commands tell of `path`, which is listed, or of what it leads to: MLST of
    /// Pure-FTPd describes a link, and that of ProFTPD gives the size of one.
    pub(crate) async fn stat_link_target(&mut self, path: &FtpPath) -> Result<Found> {
        // A link that leads nowhere, or where we may not look.
        Ok(self.stat_by_size(path).await?.unwrap_or(Found::Unknown))
    }

    async fn stat_by_size(&mut self, path: &FtpPath) -> Result<std::result::Result<Found, Reply>> {
        let doing = format!("look at {}", self.endpoint.url(path));
        // Every path we send is absolute, so the working directory may change.
        let into = self.ask(&Command::Cwd(path.clone()), &doing).await?;
        if into.code.is_success() {
            // Where it really is: a link may lead to a directory above it.
            let real = match self.working_directory(&doing).await {
                Err(error) if !self.is_usable() => return Err(error),
                told => told.ok().filter(|real| real != path),
            };
            return Ok(Ok(Found::Directory(Box::new(Facts {
                kind: Some(FactType::Dir),
                unix_slink: real.map(|real| real.as_bytes().to_vec()),
                ..Facts::default()
            }))));
        }
        Ok(match self.ask_size(path).await? {
            SizeReply::Known(size) => {
                let times = self.times_of_all(std::slice::from_ref(path)).await?;
                let modify = times
                    .into_iter()
                    .next()
                    .and_then(|time| time.ok().flatten());
                Ok(Found::File(Box::new(Facts {
                    kind: Some(FactType::File),
                    size: Some(size),
                    modify,
                    ..Facts::default()
                })))
            }
            SizeReply::Missing => Ok(Found::Missing),
            // SIZE is refused for a directory too, whose name CWD may have been refused for cause.
            SizeReply::Refused(_) if failure_kind(&into) == Some(FailureKind::PermissionDenied) => {
                Err(into)
            }
            SizeReply::Refused(reply) => Err(reply),
            SizeReply::Unknown => Ok(Found::Unknown),
        })
    }

    /// What the listing of its directory says of `path`, or that of a directory above it: nothing
    /// is below what is not there. `None`: it is there, and is not what its listing can describe.
    async fn find_in_parents(&mut self, path: &FtpPath) -> Result<Option<Found>> {
        let mut at = path.clone();
        while let (Some(parent), Some(name)) = (at.parent(), at.file_name().map(<[u8]>::to_vec)) {
            match self.find_listed(&parent, &name).await {
                Ok(Some(None)) => return Ok(Some(Found::Missing)),
                Ok(Some(Some(entry))) if at == *path => {
                    return Ok(match entry.is_directory() {
                        Some(false) => Some(Found::File(Box::new(entry.facts))),
                        _ => None,
                    });
                }
                // Its directory is there and may not be listed, or not all of it is known.
                Ok(_) => break,
                Err(error) if !self.is_usable() => return Err(error),
                Err(error @ Error::Interrupted) => return Err(error),
                Err(error) if error.refusal().is_some() => at = parent,
                Err(_) => break,
            }
        }
        Ok(Some(Found::Unknown))
    }

    /// The entry of `name` in the listing of `directory`; `None` where the listing does not show
    /// for certain that there is none.
    async fn find_listed(
        &mut self,
        directory: &FtpPath,
        name: &[u8],
    ) -> Result<Option<Option<DirectoryEntry>>> {
        let (queue, mut lines) = listing::queue();
        let whole = self.list(directory, &mut LineSink::new(queue, 0)).await?;
        let mut names = NameReader::new(directory);
        let mut found = None;
        while let Ok(some) = lines.try_recv() {
            if names.begins_again(&some) {
                found = None;
            }
            let text = some.text()?;
            for entry in names.read(&some, &text).flatten() {
                if entry.name == name {
                    found = Some(entry);
                }
            }
        }
        let is_certain = names
            .complete(&whole)
            .is_some_and(|all| !all.may_hide(name));
        Ok((found.is_some() || is_certain).then_some(found))
    }

    /// What names of `directory` are, as far as their listing has not told, in order. Of a link
    /// that leads nowhere no more becomes known.
    pub(crate) async fn stat_entries(
        &mut self,
        directory: &FtpPath,
        entries: &[DirectoryEntry],
    ) -> Result<Vec<Result<Facts>>> {
        let mut known: Vec<_> = entries.iter().map(|e| Ok(e.facts.clone())).collect();
        let mut bare = Vec::new();
        let mut timeless = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            let wanted = match (entry.is_unclear(), entry.lacks_time()) {
                (true, _) => &mut bare,
                (_, true) => &mut timeless,
                _ => continue,
            };
            match directory.join(&entry.name) {
                Ok(path) => wanted.push((at, path)),
                Err(bad) => {
                    let directory = self.endpoint.url(directory);
                    known[at] = Err(Error::Usage(format!("{directory}: {bad}")));
                }
            }
        }
        let paths: Vec<_> = timeless.iter().map(|(_, path)| path.clone()).collect();
        for ((at, _), time) in timeless.iter().zip(self.times_of_all(&paths).await?) {
            known[*at] = time.map(|modify| Facts {
                modify,
                ..entries[*at].facts.clone()
            });
        }
        let (links, bare): (Vec<_>, Vec<_>) =
            bare.into_iter().partition(|(at, _)| entries[*at].is_link());
        let paths: Vec<_> = bare.iter().map(|(_, path)| path.clone()).collect();
        let mut found = self.stat_all(&paths, true).await?;
        for (_, path) in &links {
            found.push(match self.stat_link_target(path).await {
                Err(error) if !self.is_usable() => return Err(error),
                followed => followed,
            });
        }
        for ((at, path), found) in bare.iter().chain(&links).zip(found) {
            let is_link = entries[*at].is_link();
            known[*at] = found.and_then(|found| match found {
                Found::File(facts) => Ok(Facts {
                    kind: Some(FactType::File),
                    unix_slink: is_link.then(|| b".".to_vec()).or(facts.unix_slink.clone()),
                    ..*facts
                }),
                Found::Directory(facts) => Ok(Facts {
                    kind: Some(FactType::Dir),
                    ..*facts
                }),
                Found::Missing if !is_link => Err(Error::Missing {
                    what: self.endpoint.url(path),
                }),
                Found::Missing | Found::Unknown => Ok(entries[*at].facts.clone()),
            });
        }
        Ok(known)
    }

    /// When each of `paths`, files, last changed; `None` where the server does not tell such
    /// things.
    pub(crate) async fn times_of_all(
        &mut self,
        paths: &[FtpPath],
    ) -> Result<Vec<Result<Option<Timestamp>>>> {
        let mut times = Vec::with_capacity(paths.len());
        for paths in paths.chunks(TOGETHER_MAX) {
            if self.endpoint.capabilities.lacks(Lack::Mdtm) {
                times.extend(paths.iter().map(|_| Ok(None)));
                continue;
            }
            let commands = paths.iter().map(|path| Command::Mdtm(path.clone()));
            let replies = self.ask_all(commands, "look at files").await?;
            for (path, reply) in paths.iter().zip(replies) {
                times.push(match failure_kind(&reply) {
                    None => Ok(Timestamp::parse(reply.text().trim())),
                    Some(FailureKind::NotSupported) => {
                        let instead = "times are not known and not compared";
                        self.lesson(Lack::Mdtm, &reply, "MDTM", instead);
                        Ok(None)
                    }
                    Some(_) => {
                        let doing = format!("ask the time of {}", self.endpoint.url(path));
                        Err(Error::refused(doing, reply))
                    }
                });
            }
        }
        Ok(times)
    }
}
