//! What must hold after a crash.

use super::cell::{BLOCK, look};
use super::lives::MARK;
use super::promise::Promise;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// The tag in a file's name, and its kind.
fn read_name(name: &str) -> Option<(char, u64)> {
    let (kind, rest) = name.split_once('-')?;
    Some((kind.chars().next()?, rest.split('-').next()?.parse().ok()?))
}

/// Looks at every file: it holds its own bytes, and all that was promised of it. Gives everything that is wrong.
pub fn verify(mount: &Path, promises: &BTreeMap<u64, Promise>) -> Vec<String> {
    look_through(mount, promises, false)
}

/// The same after a power cut, where the write of a page may have been on its way while the page changed.
pub fn verify_cut(mount: &Path, promises: &BTreeMap<u64, Promise>) -> Vec<String> {
    look_through(mount, promises, true)
}

/// Of all that is wrong, a promise that was not kept: what a known-bad daemon must be noticed by.
pub fn broken_promise(wrong: &[String]) -> Option<&String> {
    wrong.iter().find(|it| it.contains("was fsynced"))
}

fn look_through(mount: &Path, promises: &BTreeMap<u64, Promise>, loose: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut found: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut todo = vec![mount.to_owned()];
    while let Some(dir) = todo.pop() {
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) => {
                wrong.push(format!("{} cannot be listed: {error}", dir.display()));
                continue;
            }
        };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() {
                todo.push(path);
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some((kind, tag)) = read_name(&name) else {
                wrong.push(format!("{} was made by nobody", path.display()));
                continue;
            };
            let stamps = match read(&path, tag, loose || kind == 'm') {
                Ok(stamps) => stamps,
                Err(error) => {
                    wrong.push(format!("{} cannot be read: {error}", path.display()));
                    continue;
                }
            };
            match stamps {
                Err(why) => wrong.push(format!("{}: {why}", path.display())),
                Ok(stamps) => {
                    if let Some(promise) = promises.get(&tag)
                        && promise.names.contains(&name)
                    {
                        wrong.extend(compare(&name, &stamps, &promise.stamps));
                        wrong.extend(promise.mark.and_then(|least| compare_mark(&path, least)));
                    }
                }
            }
            found.entry(tag).or_default().push(name);
        }
    }
    for (tag, promise) in promises {
        let names = found.get(tag).map(Vec::as_slice).unwrap_or_default();
        if !promise.names.is_empty() && !promise.names.iter().any(|name| names.contains(name)) {
            wrong.push(format!("{:?} was fsynced and is not there (only {names:?})", promise.names));
        }
        wrong.extend(promise.gone.iter().filter(|name| names.contains(name)).map(|name| format!("{name} is back")));
    }
    wrong
}

/// What [`look`] says of a file. Who reads a block while it is being written may see some of both, on the file systems below
/// too; a moment later it is one of them.
fn read(path: &Path, tag: u64, loose: bool) -> io::Result<Result<Vec<Option<u64>>, String>> {
    let mut tries = 0;
    loop {
        let content = fs::read(path)?;
        let stamps = look(&content, tag, loose);
        tries += 1;
        if stamps.is_ok() || look(&content, tag, true).is_err() || tries == 3 {
            return Ok(stamps);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn compare_mark(path: &Path, least: u64) -> Option<String> {
    let mut bytes = [0; 8];
    let found = rustix::fs::getxattr(path, MARK, &mut bytes[..]).map(|_| u64::from_le_bytes(bytes));
    (!found.is_ok_and(|mark| mark >= least))
        .then(|| format!("{}: its attribute says {found:?}, and {least} was fsynced", path.display()))
}

fn compare(name: &str, stamps: &[Option<u64>], promised: &[u64]) -> Option<String> {
    let lost = promised.iter().enumerate().find(|(at, least)| {
        // Later writes may have come after the promise, earlier ones not.
        !stamps.get(*at).is_some_and(|stamp| stamp.is_some_and(|stamp| stamp >= **least))
    });
    lost.map(|(at, least)| {
        format!(
            "{name}: {} blocks of {BLOCK} bytes, block {at} has stamp {:?}, and {least} was fsynced",
            stamps.len(),
            stamps.get(at)
        )
    })
}
