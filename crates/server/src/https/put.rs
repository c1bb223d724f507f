//! PUT of a whole file, which gets its final name when it is whole, as uploads of godwit's client
//! do.

use std::{any::Any, sync::Arc, time::SystemTime};

use godwit_engine::storage::{FileKind, FileRef, Metadata, Storage, WriteMode, digest::Digest};
use godwit_http::{
    digest::{Checksum, Form},
    target::Target,
};
use godwit_http_client::{Buffer, Buffers};
use godwit_proto::{ChecksumAlgorithm, FtpPath, error::StorageFailure, temporary};
use hyper::{
    HeaderMap, StatusCode,
    body::{Body as _, Incoming},
    header,
};
use rustix::{
    io::Errno,
    rand::{GetRandomFlags, getrandom},
};
use tokio::{runtime::Handle, task::JoinHandle};

use super::{
    answer::{
        HttpAnswer, Rejected, check_change, conditions, empty, header_text, set, set_validators,
        validators,
    },
    get::wanted,
    received::next_bytes,
    record::Transfer,
    session::HttpSession,
};
use crate::{
    observe::{class::Class, event::What},
    storage::failure,
    transfers::checksums::blocking,
};

/// Bytes that are written at a time.
pub(super) const WRITE_BYTES: usize = 512 << 10;

pub(super) async fn put(
    session: &HttpSession,
    target: &Target,
    headers: &HeaderMap,
    body: &mut Incoming,
) -> Result<HttpAnswer, Rejected> {
    session.check_writes()?;
    let checksums = check_headers(target, headers)?;
    let (storage, path) = (session.storage(), target.path.clone());
    let length = body.size_hint().exact();
    let current = blocking(move || current(&*storage, &path, length)).await?;
    if current
        .as_ref()
        .is_some_and(|current| current.kind == FileKind::Directory)
    {
        let text = "there is a directory of this name";
        return Err(Rejected::new(StatusCode::METHOD_NOT_ALLOWED, text));
    }
    check_change(headers, current.as_ref())?;
    let mut transfer = Transfer::begin(&session.recorder, What::Put, &target.path, WRITE_BYTES);
    let created = Partial::create(session, &target.path).await;
    let mut partial = created.map_err(|failure| {
        transfer.end(Some(((&failure).into(), &failure.to_string())));
        Rejected::of_new_name(failure)
    })?;
    let wanted = wanted(headers);
    let algorithms = checksums.iter().map(|(algorithm, _)| *algorithm);
    let algorithms = algorithms.chain(wanted.as_ref().map(|(.., algorithm)| *algorithm));
    let mut receipt = Receipt::new(Arc::clone(&partial.file), 0, WRITE_BYTES, algorithms);
    let stored = async {
        receive(session, body, &mut receipt, &mut transfer).await?;
        let found = receipt.finish().await?;
        compare(&checksums, &found)?;
        let is_new = conditions(headers).demands_new();
        partial.give_name(session, &target.path, is_new).await?;
        Ok((found, validators(&metadata(&partial.file).await?)))
    };
    let (found, known) = match stored.await {
        Ok(stored) => stored,
        Err(refused) => {
            transfer.end(Some(failed(&refused)));
            return Err(refused);
        }
    };
    transfer.end(None);
    let mut answer = empty(match current {
        Some(_) => StatusCode::NO_CONTENT,
        None => StatusCode::CREATED,
    });
    set_validators(&mut answer, &known);
    if let Some((form, name, algorithm)) = wanted
        && let Some((_, hex)) = found.iter().find(|(of, _)| *of == algorithm)
    {
        set(&mut answer, name, form.write(algorithm, hex));
    }
    Ok(answer)
}

/// What the audit log and the metrics say of a refusal.
pub(super) fn failed(refused: &Rejected) -> (Class, &str) {
    let class = match refused.status {
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Class::Permission,
        StatusCode::INSUFFICIENT_STORAGE => Class::Space,
        StatusCode::PRECONDITION_FAILED => Class::Checksum,
        StatusCode::BAD_REQUEST | StatusCode::REQUEST_TIMEOUT => Class::ConnectionLost,
        _ => Class::Storage,
    };
    (class, refused.text())
}

/// The checksums that the file must have.
pub(super) fn check_headers(
    target: &Target,
    headers: &HeaderMap,
) -> Result<Vec<Checksum>, Rejected> {
    let refused = |status, text: &str| Err(Rejected::new(status, text));
    if header_text(headers, header::CONTENT_ENCODING).is_some_and(|text| text != "identity") {
        return refused(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "files are stored as they are: Content-Encoding is not known here",
        );
    }
    if target.is_collection {
        return refused(
            StatusCode::METHOD_NOT_ALLOWED,
            "the path is that of a directory",
        );
    }
    let mut checksums = Vec::new();
    for (form, name) in [(Form::Rfc3230, "digest"), (Form::Rfc9530, "repr-digest")] {
        for value in headers.get_all(name) {
            let read = value.to_str().ok().and_then(|value| form.read(value).ok());
            match read {
                Some(read) => checksums.extend(read),
                None => return refused(StatusCode::BAD_REQUEST, "a checksum is malformed"),
            }
        }
    }
    Ok(checksums)
}

/// What is there, if anything. Refuses a file that is larger than what is free.
pub(super) fn current(
    storage: &dyn Storage,
    path: &FtpPath,
    length: Option<u64>,
) -> Result<Option<Metadata>, StorageFailure> {
    let current = match storage.stat(path) {
        Ok(current) => Some(current),
        Err(failure) if failure.errno == Errno::NOENT.raw_os_error() => None,
        Err(failure) => return Err(failure),
    };
    if let Some(length) = length
        && length > 0
        && storage.free_bytes(path)? < length
    {
        return Err(failure(
            Errno::NOSPC,
            &format!("store {length} bytes at {path}"),
        ));
    }
    Ok(current)
}

pub(super) async fn metadata(file: &FileRef) -> Result<Metadata, StorageFailure> {
    let file = Arc::clone(file);
    blocking(move || file.metadata()).await
}

/// Takes the body. The next bytes arrive while a thread writes those before.
async fn receive(
    session: &HttpSession,
    body: &mut Incoming,
    receipt: &mut Receipt,
    transfer: &mut Transfer,
) -> Result<(), Rejected> {
    while let Some(bytes) = next_bytes(body, session.data_limit).await? {
        transfer.moved(bytes.len());
        receipt.take(&bytes).await?;
    }
    Ok(())
}

fn compare(expected: &[Checksum], found: &[Checksum]) -> Result<(), Rejected> {
    for (algorithm, expected) in expected {
        let is_same = found.contains(&(*algorithm, expected.clone()));
        if !is_same {
            let text = format!("checksum mismatch: the {algorithm} is not {expected}");
            return Err(Rejected::new(StatusCode::PRECONDITION_FAILED, text));
        }
    }
    Ok(())
}

/// Bytes on their way into a file, and their checksums.
pub(super) struct Receipt {
    file: FileRef,
    /// Bytes that are gathered for a write: what connections read is too little for a thread.
    at_once: usize,
    gathered: Option<Buffer>,
    buffers: Buffers,
    /// Where what is gathered goes.
    offset: u64,
    /// All before it has been written.
    written: u64,
    /// `None`: a thread has them.
    digests: Option<Digests>,
    writing: Option<JoinHandle<Result<Digests, StorageFailure>>>,
    /// Kept until the last byte is written, whatever becomes of the request.
    kept: Arc<dyn Any + Send + Sync>,
}

type Digests = Vec<(ChecksumAlgorithm, Digest)>;

impl Receipt {
    /// The first bytes are written soon: a small file needs no large buffer.
    const FIRST_BYTES: usize = 64 << 10;

    /// Of bytes from `offset` on.
    pub(super) fn new(
        file: FileRef,
        offset: u64,
        at_once: usize,
        algorithms: impl IntoIterator<Item = ChecksumAlgorithm>,
    ) -> Self {
        let mut digests: Digests = Vec::new();
        for algorithm in algorithms {
            if !digests.iter().any(|(of, _)| *of == algorithm) {
                digests.push((algorithm, Digest::new(algorithm)));
            }
        }
        Self {
            file,
            at_once,
            gathered: None,
            buffers: Buffers::default(),
            offset,
            written: offset,
            digests: Some(digests),
            writing: None,
            kept: Arc::new(()),
        }
    }

    /// Keeps something as long as a thread may write.
    pub(super) fn keeping(self, kept: Arc<dyn Any + Send + Sync>) -> Self {
        Self { kept, ..self }
    }

    /// Takes the next bytes. Some may wait for others before they are written.
    pub(super) async fn take(&mut self, mut bytes: &[u8]) -> Result<(), StorageFailure> {
        while !bytes.is_empty() {
            let most = match &self.digests {
                Some(_) => self.at_once.min(Self::FIRST_BYTES),
                None => self.at_once,
            };
            let gathered = self.gathered.get_or_insert_with(|| self.buffers.take(most));
            let room = gathered.room();
            let (now, later) = bytes.split_at(room.len().min(bytes.len()));
            room[..now.len()].copy_from_slice(now);
            gathered.add(now.len());
            bytes = later;
            if gathered.room().is_empty() {
                self.write().await?;
            }
        }
        Ok(())
    }

    /// Starts to write, once what was written before has been.
    async fn write(&mut self) -> Result<(), StorageFailure> {
        let mut digests = self.written().await?;
        let Some(bytes) = self.gathered.take() else {
            self.digests = Some(digests);
            return Ok(());
        };
        let (file, offset) = (Arc::clone(&self.file), self.offset);
        let kept = Arc::clone(&self.kept);
        self.offset += bytes.filled() as u64;
        self.writing = Some(tokio::task::spawn_blocking(move || {
            let _kept = kept;
            let bytes = bytes.as_ref();
            file.write_all_at(offset, bytes)?;
            for (_, digest) in &mut digests {
                digest.update(bytes);
            }
            Ok(digests)
        }));
        Ok(())
    }

    async fn written(&mut self) -> Result<Digests, StorageFailure> {
        if let Some(writing) = self.writing.take() {
            let written = writing.await;
            let digests = written.unwrap_or_else(|_| Err(failure(Errno::IO, "write")))?;
            self.written = self.offset;
            return Ok(digests);
        }
        Ok(self.digests.take().unwrap_or_default())
    }

    /// Where the next bytes go.
    pub(super) fn offset(&self) -> u64 {
        self.offset
            + self
                .gathered
                .as_ref()
                .map_or(0, |bytes| bytes.filled() as u64)
    }

    /// What lies before is in the file.
    pub(super) fn written_to(&self) -> u64 {
        self.written
    }

    pub(super) async fn finish(&mut self) -> Result<Vec<Checksum>, StorageFailure> {
        self.write().await?;
        let digests = self.written().await?.into_iter();
        let finished = digests.map(|(algorithm, digest)| (algorithm, digest.finish()));
        Ok(finished.collect())
    }
}

/// A file under a temporary name, which is removed unless it gets its final one.
pub(super) struct Partial {
    storage: Arc<dyn Storage>,
    unscoped: Arc<dyn Storage>,
    pub(super) file: FileRef,
    path: FtpPath,
    /// There is nothing to remove.
    pub(super) is_named: bool,
    /// Directories that were made for it. They go with it.
    pub(super) made: Vec<FtpPath>,
}

/// A name in the directory of `path` that no other has.
pub(super) fn temporary_sibling(path: &FtpPath) -> Result<FtpPath, StorageFailure> {
    let mut digits = [0; 8];
    getrandom(&mut digits, GetRandomFlags::empty())
        .map_err(|errno| failure(errno, "choose a temporary name"))?;
    let name = temporary::temporary_name(u64::from_be_bytes(digits));
    let sibling = path.sibling(name.as_bytes());
    sibling.ok_or_else(|| failure(Errno::ISDIR, &format!("store {path}")))
}

impl Partial {
    /// In the directory of `path`.
    pub(super) async fn create(
        session: &HttpSession,
        path: &FtpPath,
    ) -> Result<Self, StorageFailure> {
        let path = path.clone();
        let (storage, unscoped) = (session.storage(), Arc::clone(&session.unscoped));
        let scoped = session.scoped.clone();
        blocking(move || {
            let (path, name) = (temporary_sibling(&path)?, path);
            let storage: Arc<dyn Storage> = match scoped {
                Some(scoped) => Arc::new(scoped.storing(&name, &path)),
                None => storage,
            };
            let file = storage.open_write(&path, WriteMode::New)?;
            Ok(Self {
                storage,
                unscoped,
                file,
                path,
                is_named: false,
                made: Vec::new(),
            })
        })
        .await
    }

    /// The same without the rights of the login.
    pub(super) async fn unscoped(
        session: &HttpSession,
        path: &FtpPath,
    ) -> Result<Self, StorageFailure> {
        let (storage, path) = (Arc::clone(&session.unscoped), path.clone());
        blocking(move || {
            let path = temporary_sibling(&path)?;
            let file = storage.open_write(&path, WriteMode::New)?;
            Ok(Self {
                unscoped: Arc::clone(&storage),
                storage,
                file,
                path,
                is_named: false,
                made: Vec::new(),
            })
        })
        .await
    }

    /// The same for a part of an upload.
    pub(super) async fn give_name_unscoped(
        &mut self,
        session: &HttpSession,
        to: &FtpPath,
    ) -> Result<(), StorageFailure> {
        let committer = &session.unscoped_committer;
        let file = Some(Arc::clone(&self.file));
        committer.commit(file, Vec::new()).await?;
        let (storage, from, name) = (Arc::clone(&self.storage), self.path.clone(), to.clone());
        blocking(move || storage.rename(&from, &name)).await?;
        self.is_named = true;
        committer.commit(None, Vec::from_iter(to.parent())).await
    }

    /// Sets when it was modified.
    pub(super) async fn set_modified(&self, modified: SystemTime) -> Result<(), StorageFailure> {
        let (storage, path) = (Arc::clone(&self.storage), self.path.clone());
        blocking(move || storage.set_modified(&path, modified)).await
    }

    /// Its temporary name.
    pub(super) fn path(&self) -> &FtpPath {
        &self.path
    }

    /// Makes the file durable as far as the settings want, and gives it its name. `is_new`: nothing
    /// may have that name.
    pub(super) async fn give_name(
        &mut self,
        session: &HttpSession,
        to: &FtpPath,
        is_new: bool,
    ) -> Result<(), StorageFailure> {
        let committer = &session.committer;
        committer
            .commit(Some(Arc::clone(&self.file)), Vec::new())
            .await?;
        let (storage, from, name) = (Arc::clone(&self.storage), self.path.clone(), to.clone());
        let named = blocking(move || match is_new {
            true => storage.rename_noreplace(&from, &name),
            false => storage.rename(&from, &name),
        });
        named.await?;
        self.is_named = true;
        committer.commit(None, Vec::from_iter(to.parent())).await
    }
}

/// Removes directories that are empty, the last first.
pub(super) fn prune(storage: &dyn Storage, directories: &[FtpPath]) {
    for path in directories.iter().rev() {
        match storage.remove_dir(path) {
            // Another request has removed it.
            Err(failure) if failure.errno == Errno::NOENT.raw_os_error() => {}
            Err(_) => break,
            Ok(()) => {}
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if self.is_named {
            return;
        }
        let (storage, path) = (Arc::clone(&self.unscoped), self.path.clone());
        // Without a runtime the server ends: leftovers are removed later.
        let made = std::mem::take(&mut self.made);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn_blocking(move || {
                drop(storage.remove_file(&path));
                prune(&*storage, &made);
            });
        }
    }
}
