//! What happens to the database of a service under test, and to its replica.

use std::fs;
use std::process::Command;

use super::Fleet;
use crate::faults::Error;
use crate::faults::memory_disk::MemoryDisk;
use crate::file_error::io_error;
use crate::peers::START_TIMEOUT;
use crate::peers::postgres::Postgres;
use crate::peers::process;

impl Fleet {
    /// Bytes of the database on its disk.
    pub(in crate::faults::service) fn database_bytes(&self) -> u64 {
        let mut folders = vec![self.folder.join("database")];
        let mut bytes = 0;
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                match entry.metadata() {
                    // Segments of the log are written again and again.
                    Ok(_) if entry.file_name() == "pg_wal" => {}
                    Ok(found) if found.is_dir() => folders.push(entry.path()),
                    Ok(found) => bytes += found.len(),
                    Err(_) => {}
                }
            }
        }
        bytes
    }

    /// The database ends at once.
    pub(in crate::faults::service) fn crash_database(&mut self) -> Result<(), Error> {
        self.database_failed = true;
        if let Some(postgres) = &mut self.postgres {
            let said = postgres.crash()?;
            self.database_log.push_str(&said);
        }
        Ok(())
    }

    /// On a disk that has room again: on a full one it would not start.
    pub(in crate::faults::service) fn begin_database(&mut self) -> Result<(), Error> {
        self.empty_database_disk()?;
        match &mut self.postgres {
            Some(postgres) if !postgres.is_running() => Ok(postgres.begin()?),
            _ => Ok(()),
        }
    }

    pub(in crate::faults::service) fn fill_database_disk(&mut self) -> Result<(), Error> {
        self.database_failed = true;
        let filled = self.database_disk.as_ref().map_or(Ok(()), MemoryDisk::fill);
        Ok(filled.map_err(io_error(&self.folder))?)
    }

    /// The database may have ended for want of room.
    pub(in crate::faults::service) fn empty_database_disk(&mut self) -> Result<(), Error> {
        let disk = self.database_disk.as_ref();
        let emptied = disk.map_or(Ok(()), MemoryDisk::unfill);
        emptied.map_err(io_error(&self.folder))?;
        for server in [&mut self.postgres, &mut self.replica]
            .into_iter()
            .flatten()
        {
            if server.has_ended()? {
                self.database_log.push_str(&server.crash()?);
                server.begin()?;
            }
        }
        Ok(())
    }

    /// The replica gets nothing from now on.
    pub(in crate::faults::service) fn cut_replica_off(&self) -> Result<(), Error> {
        match &self.replica {
            Some(replica) => Ok(replica.cut_off()?),
            None => Ok(()),
        }
    }

    /// The replica is the database from now on.
    pub(in crate::faults::service) fn promote_replica(&mut self) -> Result<(), Error> {
        // A replica whose disk is full cannot take over.
        self.empty_database_disk()?;
        let Some(replica) = self.replica.take() else {
            return Ok(());
        };
        self.crash_database()?;
        replica.promote()?;
        let link = self.folder.join("socket");
        let other = self.folder.join("socket.new");
        let moved = std::os::unix::fs::symlink(replica.data(), &other)
            .and_then(|()| fs::rename(&other, &link));
        moved.map_err(io_error(&link))?;
        self.postgres = Some(replica);
        Ok(())
    }

    /// Copies the database while nothing uses it, or puts the copy back in its place.
    pub(in crate::faults::service) fn copy_database(&mut self, back: bool) -> Result<(), Error> {
        for number in 0..self.nodes.len() {
            self.kill_node(number)?;
        }
        let ran = self.postgres.as_ref().is_some_and(Postgres::is_running);
        self.crash_database()?;
        let home = self.folder.join("database");
        let home = self.postgres.as_ref().map_or(home, |p| p.data().to_owned());
        let backup = self.folder.join("backup");
        let (from, to) = match back {
            true => (&backup, &home),
            false => (&home, &backup),
        };
        let mut copy = Command::new("sh");
        copy.args([
            "-c",
            "mkdir -p \"$2\" && find \"$2\" -mindepth 1 -delete && cp -a \"$1/.\" \"$2\"",
        ]);
        copy.arg("copy").arg(from).arg(to);
        process::run(copy, START_TIMEOUT)?.success()?;
        if ran {
            self.begin_database()?;
        }
        self.want_nodes();
        Ok(())
    }
}
