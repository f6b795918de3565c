//! `-` in the place of a local file: the standard input or output. How long a file is must be known before its first stripe is sent, and
//! nothing is shown of one that is not whole: so it goes through a temporary file, which has no name while it waits for who is at the other end.

use anyhow::Context;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Whether it stands for the standard input or output.
pub fn is_meant(path: &Path) -> bool {
    path == Path::new("-")
}

/// All of the standard input.
pub fn take() -> anyhow::Result<File> {
    let mut file = tempfile::tempfile().context("make a temporary file")?;
    io::copy(&mut io::stdin().lock(), &mut file).context("copy the standard input to a temporary file")?;
    Ok(file)
}

/// The name of a file that has none.
pub fn path(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Copies a file to the standard output. A reader that goes away wants no more.
pub fn give(mut file: File) -> anyhow::Result<()> {
    match io::copy(&mut file, &mut io::stdout().lock()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("write to the standard output"),
        _ => Ok(()),
    }
}
