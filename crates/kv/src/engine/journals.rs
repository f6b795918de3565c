//! What the engine's journals hold in memory but maybe not on the disk.
//!
//! A page whose write failed stays in the page cache, and counts as written once somebody was told (fsync(2)). The engine reads its journal from
//! there when it is opened next, and nothing that it does makes such a page durable: the log would be begun anew, and the power cut after that took
//! what only the log had had. So the journals are written once more before they are read, but where the last close said that all of
//! them is durable.

use crate::held::shown;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Bytes written at a time; what is nothing but zeros may be no more than room.
const PIECE: usize = 64 << 10;

/// Writes the journals of the engine in `dir` once more, where they are not as [`note`] left them.
pub(super) fn make_durable(dir: &Path) -> io::Result<()> {
    let state = state(dir)?;
    if state.is_empty() || fs::read_to_string(note_of(dir)).is_ok_and(|noted| noted == state) {
        return Ok(());
    }
    for journal in journals(dir)? {
        match write_again(&journal) {
            // A file system that writes nothing in place: it holds what it held before.
            Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                let path = shown(&journal);
                tracing::warn!(path = %path.display(), %error, "there is no room to write the journal once more");
            }
            written => written?,
        }
    }
    Ok(())
}

/// Notes that all that the journals of the engine in `dir` hold is durable, and that nobody writes there any more. The note need not survive.
pub(super) fn note(dir: &Path) -> io::Result<()> {
    fs::write(note_of(dir), state(dir)?)
}

fn note_of(dir: &Path) -> PathBuf {
    dir.with_extension("durable")
}

fn journals(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut journals = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        entries => entries?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?,
    };
    journals.retain(|path| path.extension().is_some_and(|extension| extension == "jnl"));
    journals.sort_unstable();
    Ok(journals)
}

/// The one that is written to.
pub(super) fn newest(dir: &Path) -> io::Result<Option<PathBuf>> {
    let number = |path: &Path| path.file_stem()?.to_str()?.parse::<u64>().ok();
    Ok(journals(dir)?.into_iter().filter_map(|path| Some((number(&path)?, path))).max().map(|(_, path)| path))
}

/// Whatever a write changes.
fn state(dir: &Path) -> io::Result<String> {
    let mut state = String::new();
    for journal in journals(dir)? {
        let about = fs::metadata(&journal)?;
        let name = journal.file_name().unwrap_or_default().display();
        let time = (about.mtime(), about.mtime_nsec());
        // Writing to a string never fails.
        let _ = writeln!(state, "{name} {} {} {}.{:09}", about.ino(), about.len(), time.0, time.1);
    }
    Ok(state)
}

fn write_again(path: &Path) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut bytes = vec![0; PIECE];
    let mut offset = 0;
    loop {
        let n = file.read_at(&mut bytes, offset)?;
        let Some(piece) = bytes.get(..n).filter(|piece| !piece.is_empty()) else { break };
        if piece.iter().any(|byte| *byte != 0) {
            file.write_all_at(piece, offset)?;
        }
        offset += n as u64;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A write is seen by its time of change alone.
    #[test]
    fn journals_are_written_again_unless_they_are_as_they_were_noted() {
        let above = tempfile::tempdir().unwrap();
        let dir = above.path().join("engine");
        make_durable(&dir).unwrap();
        fs::create_dir(&dir).unwrap();
        let (journal, other) = (dir.join("0.jnl"), dir.join("manifest"));
        let content: Vec<u8> = (0..200_000u32).map(|n| if n < 100_000 { n as u8 } else { 0 }).collect();
        fs::write(&journal, &content).unwrap();
        fs::write(&other, "x").unwrap();
        let old = std::time::SystemTime::UNIX_EPOCH;
        let age = |path: &Path| File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
        let was_written = |path: &Path| fs::metadata(path).unwrap().modified().unwrap() != old;
        let written = |dir: &Path| {
            make_durable(dir).unwrap();
            assert_eq!(fs::read(&journal).unwrap(), content);
            assert!(!was_written(&other));
            was_written(&journal)
        };
        age(&other);
        age(&journal);
        assert!(written(&dir), "nobody said that it is durable");
        age(&journal);
        note(&dir).unwrap();
        assert!(!written(&dir));
        File::options().write(true).open(&journal).unwrap().write_all_at(&content[..10], 0).unwrap();
        age(&journal);
        assert!(!written(&dir), "it is as it was noted");
        fs::copy(&journal, dir.join("1.jnl")).unwrap();
        assert!(written(&dir), "another one is there");
    }
}
