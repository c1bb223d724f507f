//! DELETE, MKCOL, MOVE and COPY.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use godwit_engine::storage::{FileKind, Metadata, Storage, WriteMode};
use godwit_http::{
    dav::{Depth, overwrite},
    target::{BadTarget, Target},
};
use godwit_proto::{FtpPath, error::StorageFailure};
use hyper::{HeaderMap, StatusCode, body::Incoming, header};
use rustix::io::Errno;

use super::{
    answer::{HttpAnswer, Rejected, check_change, empty, header_text},
    parts,
    put::{Partial, temporary_sibling},
    received::whole,
    session::HttpSession,
};
use crate::{
    access::long_calls::{CallKind, CallTurn},
    observe::event::{Entry, What},
    storage::failure,
    transfers::checksums::blocking,
};

/// Bytes that a copy reads at a time.
const COPY_BYTES: usize = 1 << 20;

/// Directories of a copy that wait.
const DIRECTORIES_MAX: usize = 100_000;

pub(super) async fn delete(
    session: &HttpSession,
    target: &Target,
    headers: &HeaderMap,
) -> Result<HttpAnswer, Rejected> {
    session.check_writes()?;
    check_not_root(&target.path)?;
    let current = there(session, &target.path).await?;
    check_change(headers, Some(&current))?;
    let is_tree = is_directory(&current);
    if is_tree && Depth::parse(header_text(headers, "depth")) != Some(Depth::Infinity) {
        let text = "a directory is removed with all that is in it: Depth is infinity";
        return Err(Rejected::new(StatusCode::BAD_REQUEST, text));
    }
    if target.is_collection && !is_tree {
        return Err(Rejected::new(
            StatusCode::NOT_FOUND,
            "there is no such directory",
        ));
    }
    let entry = Entry::new(What::Delete).path(&target.path);
    let removing = async {
        let turn = turn_of_tree(session, is_tree).await?;
        remove(session, target.path.clone(), turn.as_ref()).await
    };
    let removed = removing.await;
    session.recorder.change(entry, &removed);
    removed?;
    sync_parent(session, &target.path).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

pub(super) async fn make_collection(
    session: &HttpSession,
    target: &Target,
    body: &mut Incoming,
) -> Result<HttpAnswer, Rejected> {
    session.check_writes()?;
    let body = whole(body, 0, session.data_limit).await;
    body.map_err(|refused| match refused.status {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let text = "MKCOL has no body here";
            Rejected::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text)
        }
        _ => refused,
    })?;
    let entry = Entry::new(What::Mkdir).path(&target.path);
    let (storage, path) = (session.storage(), target.path.clone());
    let made = blocking(move || storage.create_dir(&path)).await;
    session.recorder.change(entry, &made);
    made.map_err(
        |failure| match failure.errno == Errno::EXIST.raw_os_error() {
            true => Rejected::new(StatusCode::METHOD_NOT_ALLOWED, failure.to_string()),
            false => Rejected::of_new_name(failure),
        },
    )?;
    sync_parent(session, &target.path).await?;
    Ok(empty(StatusCode::CREATED))
}

pub(super) async fn move_to(
    session: &HttpSession,
    target: &Target,
    headers: &HeaderMap,
) -> Result<HttpAnswer, Rejected> {
    let plan = Plan::new(session, target, headers).await?;
    if plan.depth != Depth::Infinity && is_directory(&plan.source) {
        let text = "a directory is moved with all that is in it: Depth is infinity";
        return Err(Rejected::new(StatusCode::BAD_REQUEST, text));
    }
    let _held = parts::hold(&plan.source)?;
    let entry = Entry::new(What::Rename).path(&plan.from).to(&plan.to);
    let moving = async {
        // Before the change: afterwards the destination would be there, and the answer a failure.
        let turn = turn_of_tree(session, plan.replaces_tree()).await?;
        plan.give_name(session, plan.from.clone(), turn.as_ref())
            .await
    };
    let moved = moving.await;
    session.recorder.change(entry, &moved);
    moved.map_err(Rejected::of_new_name)?;
    sync_parent(session, &plan.from).await?;
    sync_parent(session, &plan.to).await?;
    Ok(plan.answer())
}

pub(super) async fn copy(
    session: &HttpSession,
    target: &Target,
    headers: &HeaderMap,
) -> Result<HttpAnswer, Rejected> {
    let plan = Plan::new(session, target, headers).await?;
    if plan.depth == Depth::One {
        return Err(Rejected::new(
            StatusCode::BAD_REQUEST,
            "Depth is 0 or infinity",
        ));
    }
    let entry = Entry::new(What::Put).path(&plan.to);
    let copied = match is_directory(&plan.source) {
        true => copy_directory(session, &plan).await,
        false => copy_one(session, &plan).await,
    };
    session.recorder.change(entry, &copied);
    copied.map_err(Rejected::of_new_name)?;
    sync_parent(session, &plan.to).await?;
    Ok(plan.answer())
}

/// What MOVE and COPY do.
struct Plan {
    from: FtpPath,
    to: FtpPath,
    source: Metadata,
    /// What is at the destination.
    current: Option<Metadata>,
    replaces: bool,
    depth: Depth,
}

impl Plan {
    async fn new(
        session: &HttpSession,
        target: &Target,
        headers: &HeaderMap,
    ) -> Result<Self, Rejected> {
        session.check_writes()?;
        let bad = |text: &str| Rejected::new(StatusCode::BAD_REQUEST, text);
        let destination = header_text(headers, "destination");
        let destination = destination.ok_or_else(|| bad("there is no Destination"))?;
        let host = header_text(headers, header::HOST);
        let to = Target::of_destination(destination, host).map_err(|why| match why {
            BadTarget::Relative => bad("the Destination is no URL"),
            other => other.into(),
        })?;
        let depth = Depth::parse(header_text(headers, "depth")).ok_or_else(|| bad("bad Depth"))?;
        let replaces = overwrite(header_text(headers, "overwrite"));
        let replaces = replaces.ok_or_else(|| bad("Overwrite is T or F"))?;
        let (from, to) = (target.path.clone(), to.path);
        check_not_root(&from)?;
        check_not_root(&to)?;
        // Neither end may be inside the other: one would vanish while it is copied.
        if is_within(&from, &to) || is_within(&to, &from) {
            let text = "source and destination are the same, or one is inside the other";
            return Err(Rejected::new(StatusCode::FORBIDDEN, text));
        }
        let source = there(session, &from).await?;
        check_change(headers, Some(&source))?;
        let current = match there(session, &to).await {
            Ok(current) => Some(current),
            Err(failure) if failure.errno == Errno::NOENT.raw_os_error() => None,
            Err(failure) => return Err(Rejected::of_new_name(failure)),
        };
        if current.is_some() && !replaces {
            let text = "the destination exists, and Overwrite is F";
            return Err(Rejected::new(StatusCode::PRECONDITION_FAILED, text));
        }
        Ok(Self {
            from,
            to,
            source,
            current,
            replaces,
            depth,
        })
    }

    /// Renames `from` to the destination. What a rename does not replace is put aside first, and
    /// comes back where the rename fails; it is removed when that has been done. `turn`: to remove
    /// a tree.
    async fn give_name(
        &self,
        session: &HttpSession,
        from: FtpPath,
        turn: Option<&CallTurn>,
    ) -> Result<(), StorageFailure> {
        let (storage, to) = (session.storage(), self.to.clone());
        let has_tree = self.replaces_tree() || is_directory(&self.source);
        let displaces = self.current.is_some() && has_tree;
        let is_new = !self.replaces && !is_directory(&self.source);
        let displaced = blocking(move || {
            if !displaces {
                let renamed = match is_new {
                    true => storage.rename_noreplace(&from, &to),
                    false => storage.rename(&from, &to),
                };
                return renamed.map(|()| None);
            }
            let displaced = temporary_sibling(&to)?;
            storage.rename(&to, &displaced)?;
            match storage.rename(&from, &to) {
                Ok(()) => Ok(Some(displaced)),
                Err(failed) => {
                    storage.rename(&displaced, &to)?;
                    Err(failed)
                }
            }
        });
        let Some(displaced) = displaced.await? else {
            return Ok(());
        };
        let turn = turn.filter(|_| self.replaces_tree());
        let removed = remove(session, displaced, turn).await;
        let entry = Entry::new(What::Delete).path(&self.to);
        session.recorder.change(entry, &removed);
        removed
    }

    fn replaces_tree(&self) -> bool {
        self.current.as_ref().is_some_and(is_directory)
    }

    fn answer(&self) -> HttpAnswer {
        empty(match self.current {
            Some(_) => StatusCode::NO_CONTENT,
            None => StatusCode::CREATED,
        })
    }
}

fn check_not_root(path: &FtpPath) -> Result<(), Rejected> {
    match path.parent() {
        Some(_) => Ok(()),
        None => Err(Rejected::new(
            StatusCode::FORBIDDEN,
            "the root stays what it is",
        )),
    }
}

/// A link to a directory is a file of its own.
pub(super) fn is_directory(metadata: &Metadata) -> bool {
    metadata.kind == FileKind::Directory && metadata.link_target.is_none()
}

/// Component by component.
fn is_within(path: &FtpPath, top: &FtpPath) -> bool {
    let rest = path.as_bytes().strip_prefix(top.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

async fn there(session: &HttpSession, path: &FtpPath) -> Result<Metadata, StorageFailure> {
    let (storage, path) = (session.storage(), path.clone());
    blocking(move || storage.stat(&path)).await
}

async fn turn_of_tree(
    session: &HttpSession,
    is_tree: bool,
) -> Result<Option<CallTurn>, StorageFailure> {
    match is_tree {
        true => session.long_calls.turn(CallKind::Change).await.map(Some),
        false => Ok(None),
    }
}

/// Removes a file, or with a turn a tree.
async fn remove(
    session: &HttpSession,
    path: FtpPath,
    turn: Option<&CallTurn>,
) -> Result<(), StorageFailure> {
    match turn {
        Some(turn) => {
            let removing = long_call(session, turn, move |storage, _| storage.remove_tree(&path));
            removing.await
        }
        None => {
            let storage = session.storage();
            blocking(move || storage.remove_file(&path)).await
        }
    }
}

pub(super) async fn sync_parent(
    session: &HttpSession,
    path: &FtpPath,
) -> Result<(), StorageFailure> {
    let committer = &session.committer;
    committer.commit(None, Vec::from_iter(path.parent())).await
}

/// Tells a thread that its result is not needed any more.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` on a thread of its own, which the turn allows. The flag says that nothing waits for
/// its result any more.
pub(super) async fn long_call<T: Send + 'static>(
    session: &HttpSession,
    turn: &CallTurn,
    work: impl FnOnce(&dyn Storage, &AtomicBool) -> Result<T, StorageFailure> + Send + 'static,
) -> Result<T, StorageFailure> {
    let turn = turn.clone();
    let stop = StopOnDrop(Arc::default());
    let (storage, stopped) = (session.storage(), Arc::clone(&stop.0));
    blocking(move || {
        let _turn = turn;
        work(&*storage, &stopped)
    })
    .await
}

/// A file gets its name when it is whole.
async fn copy_one(session: &HttpSession, plan: &Plan) -> Result<(), StorageFailure> {
    let turn = session.long_calls.turn(CallKind::Change).await?;
    let mut partial = Partial::create(session, &plan.to).await?;
    let (from, into) = (plan.from.clone(), Arc::clone(&partial.file));
    let copying = long_call(session, &turn, move |storage, stop| {
        copy_bytes(storage, &from, &*into, stop)
    });
    copying.await?;
    match plan.current.as_ref().is_some_and(is_directory) {
        true => {
            let file = Some(Arc::clone(&partial.file));
            session.committer.commit(file, Vec::new()).await?;
            let path = partial.path().clone();
            let named = plan.give_name(session, path, Some(&turn)).await;
            partial.is_named = named.is_ok();
            named
        }
        false => partial.give_name(session, &plan.to, !plan.replaces).await,
    }
}

/// A directory gets its name when all of it is there.
async fn copy_directory(session: &HttpSession, plan: &Plan) -> Result<(), StorageFailure> {
    let turn = session.long_calls.turn(CallKind::Change).await?;
    let copy = temporary_sibling(&plan.to)?;
    let (from, to, depth) = (plan.from.clone(), copy.clone(), plan.depth);
    let copying = long_call(session, &turn, move |storage, stop| {
        let copied = copy_tree(storage, from, &to, depth, stop);
        copied.inspect_err(|_| drop(storage.remove_tree(&to)))
    });
    copying.await?;
    let named = plan.give_name(session, copy.clone(), Some(&turn)).await;
    if named.is_err() {
        // The first failure is told.
        let _ = remove(session, copy, Some(&turn)).await;
    }
    named
}

fn copy_bytes(
    storage: &dyn Storage,
    from: &FtpPath,
    into: &dyn godwit_engine::storage::File,
    stop: &AtomicBool,
) -> Result<(), StorageFailure> {
    let file = storage.open_read(from)?;
    if file.as_opened()?.kind != FileKind::File {
        return Err(failure(
            Errno::PERM,
            &format!("copy the special file {from}"),
        ));
    }
    let (mut buffer, mut offset) = (vec![0; COPY_BYTES], 0);
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(failure(Errno::CANCELED, &format!("copy {from}")));
        }
        let got = file.read_at(offset, &mut buffer)?;
        if got == 0 {
            return Ok(());
        }
        into.write_all_at(offset, &buffer[..got])?;
        offset += got as u64;
    }
}

/// A directory, and what is in it unless `depth` is 0. Links are left out, and so are special
/// files: a copy of them may lead elsewhere. So is the copy itself, which a link may have led to
/// below the source.
fn copy_tree(
    storage: &dyn Storage,
    from: FtpPath,
    to: &FtpPath,
    depth: Depth,
    stop: &AtomicBool,
) -> Result<(), StorageFailure> {
    storage.create_dir(to)?;
    if depth == Depth::Zero {
        return Ok(());
    }
    let itself = storage.stat(to)?.unique;
    let mut waiting = VecDeque::from([(from, to.clone())]);
    while let Some((from, to)) = waiting.pop_front() {
        for entry in storage.list(&from)? {
            if stop.load(Ordering::Relaxed) {
                return Err(failure(Errno::CANCELED, &format!("copy {from}")));
            }
            let (name, metadata) = entry?;
            let (Ok(from), Ok(to)) = (from.join(&name), to.join(&name)) else {
                continue;
            };
            match metadata.kind {
                _ if metadata.link_target.is_some() || metadata.unique == itself => {}
                FileKind::Directory if waiting.len() < DIRECTORIES_MAX => {
                    storage.create_dir(&to)?;
                    waiting.push_back((from, to));
                }
                FileKind::Directory => {
                    return Err(failure(Errno::FBIG, "copy so many directories"));
                }
                FileKind::File => {
                    let into = storage.open_write(&to, WriteMode::New)?;
                    copy_bytes(storage, &from, &*into, stop)?;
                }
                FileKind::Special(_) => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_begin_alike_are_not_inside() {
        let path = |text: &str| FtpPath::new(text).unwrap();
        for (inner, outer, inside) in [
            ("/a", "/a", true),
            ("/a/b", "/a", true),
            ("/ab", "/a", false),
            ("/a", "/a/b", false),
        ] {
            assert_eq!(
                is_within(&path(inner), &path(outer)),
                inside,
                "{inner} {outer}"
            );
        }
    }
}
