//! Health: what is in a file at the root that a front end has made?

use std::{sync::Arc, time::Duration};

use godwit_engine::storage::{FileRef, Storage};
use godwit_proto::{FtpPath, error::StorageFailure, temporary::is_temporary};
use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout};

use crate::nodes::messages::Sight;

/// Bytes of a file that a front end asks for.
const LOOK_BYTES: usize = 64;

/// Time for an answer: front ends wait a little longer.
const LOOK_LIMIT: Duration = Duration::from_millis(1500);

/// Looks when no other look runs. Where the file system hangs, one thread hangs with it, and all
/// who ask hear why.
pub(super) async fn look(
    storage: Arc<dyn Storage>,
    name: String,
    turns: Arc<Semaphore>,
) -> Result<Sight, String> {
    let looked = async {
        // Nobody closes it.
        let turn = turns.acquire_owned().await.map_err(|e| e.to_string())?;
        let looked = spawn_blocking(move || {
            let sight = sight_of(&*storage, &name);
            drop(turn);
            sight
        });
        let looked = looked.await;
        looked.unwrap_or_else(|_| Err("internal error".to_owned()))
    };
    let limit = LOOK_LIMIT.as_secs_f64();
    (timeout(LOOK_LIMIT, looked).await).unwrap_or_else(|_| {
        Err(format!(
            "the file system at its root does not answer within {limit} s"
        ))
    })
}

/// Blocks. Only names of files that are made for this.
fn sight_of(storage: &dyn Storage, name: &str) -> Result<Sight, String> {
    let is_meant = !name.contains('/') && is_temporary(name.as_bytes());
    let path = FtpPath::new(format!("/{name}")).ok().filter(|_| is_meant);
    let path = path.ok_or("that is no name of such a file")?;
    let read = |file: FileRef| {
        let mut bytes = [0; LOOK_BYTES];
        let count = file.read_at(0, &mut bytes)?;
        Ok::<_, StorageFailure>(Sight {
            text: String::from_utf8_lossy(&bytes[..count]).into_owned(),
            inode: file.metadata()?.unique.1,
        })
    };
    let read = storage.open_read(&path).and_then(read);
    read.map_err(|failure| failure.text)
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use godwit_engine::storage::{
        MemoryStorage,
        faulty::{FaultyStorage, Operation},
    };
    use godwit_proto::temporary::temporary_name;

    use super::*;

    #[test]
    fn a_file_system_that_hangs_keeps_one_thread() {
        let (release, gate) = mpsc::channel::<()>();
        let (gate, opens) = (Mutex::new(gate), Arc::new(Mutex::new(0)));
        let counted = Arc::clone(&opens);
        let delay = move |operation, _| {
            if operation == Operation::OpenRead {
                *counted.lock().unwrap() += 1;
                let _ = gate.lock().unwrap().recv();
            }
        };
        let storage = FaultyStorage::new(Arc::new(MemoryStorage::new()), Vec::new());
        let storage: Arc<dyn Storage> = Arc::new(storage.with_delay(Arc::new(delay)));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let turns = Arc::new(Semaphore::new(1));
            let ask = || look(Arc::clone(&storage), temporary_name(1), Arc::clone(&turns));
            for answer in [ask().await, ask().await] {
                assert!(answer.unwrap_err().contains("does not answer"));
            }
            assert_eq!(*opens.lock().unwrap(), 1, "the second has no thread");
            drop(release);
            let answer = ask().await;
            assert!(answer.unwrap_err().contains("No such file"));
        });
    }
}
