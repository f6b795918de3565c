//! What else a program does to a file and then has made durable: each step is promised once it is.

use super::cell::{BLOCK, block};
use super::workload::Worker;
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::{ReadWriteFlags, pwritev2};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// The attribute that says when it was set.
pub(super) const MARK: &str = "user.mark";

impl Worker<'_> {
    /// Makes names durable in one of the ways there are: by the directory, by any file, by an open of one for synchronous writes.
    pub(super) fn make_durable(&mut self, file: &File, name: &str) -> io::Result<()> {
        match self.random.below(3) {
            0 => self.sync_dir(),
            1 => file.sync_all(),
            _ => self.open_with(name, libc::O_SYNC).map(drop),
        }
    }

    fn open_with(&self, name: &str, flags: i32) -> io::Result<File> {
        OpenOptions::new().write(true).custom_flags(flags).open(self.path(name))
    }

    /// One more step in the life of a file that has so many blocks, is promised, and has this name.
    pub(super) fn live_on(&mut self, tag: u64, name: &str, file: &File, blocks: u64) -> io::Result<()> {
        let stamps = match self.random.below(8) {
            0 => {
                let how = self.random.pick(&[libc::O_SYNC, libc::O_DSYNC]);
                let synchronous = self.open_with(name, how)?;
                self.fill(&synchronous, tag, blocks + 2)?
            }
            1 => self.fill_durably(file, tag, blocks + 2)?,
            2 => {
                let how = self.random.pick(&[FallocateFlags::empty(), FallocateFlags::KEEP_SIZE]);
                rustix::fs::fallocate(file, how, 0, (blocks + 4) * BLOCK as u64)?;
                let stamps = self.fill(file, tag, blocks + 2)?;
                file.sync_data()?;
                stamps
            }
            3 => {
                self.load.promises.change(tag, |p| p.stamps.clear());
                let cut = self.open_with(name, libc::O_TRUNC)?;
                let stamps = self.fill(&cut, tag, blocks)?;
                cut.sync_all()?;
                stamps
            }
            4 => {
                let appends = self.open_with(name, libc::O_APPEND)?;
                let stamp = self.load.stamp();
                let end = file.metadata()?.len() / BLOCK as u64;
                io::Write::write_all(&mut &appends, &block(tag, end, stamp))?;
                appends.sync_data()?;
                self.load.promises.change(tag, |p| p.stamps.push(stamp));
                return Ok(());
            }
            5 => return self.mark(tag, name, file),
            6 => self.exchange(tag, name, blocks)?,
            _ => self.copy(tag, file, blocks)?,
        };
        self.load.promises.change(tag, |p| p.stamps = stamps);
        Ok(())
    }

    fn fill_durably(&mut self, file: &File, tag: u64, blocks: u64) -> io::Result<Vec<u64>> {
        let mut stamps = Vec::new();
        for number in 0..blocks {
            let stamp = self.load.stamp();
            let bytes = block(tag, number, stamp);
            let how = self.random.pick(&[ReadWriteFlags::DSYNC, ReadWriteFlags::SYNC]);
            if pwritev2(file, &[IoSlice::new(&bytes)], number * BLOCK as u64, how)? < BLOCK {
                return Err(io::ErrorKind::WriteZero.into());
            }
            stamps.push(stamp);
        }
        Ok(stamps)
    }

    fn mark(&mut self, tag: u64, name: &str, file: &File) -> io::Result<()> {
        let stamp = self.load.stamp();
        rustix::fs::fsetxattr(file, MARK, &stamp.to_le_bytes(), XattrFlags::empty())?;
        self.make_durable(file, name)?;
        self.load.promises.change(tag, |p| p.mark = Some(stamp));
        let stamp = self.load.stamp();
        Ok(rustix::fs::fsetxattr(file, MARK, &stamp.to_le_bytes(), XattrFlags::empty())?)
    }

    /// Another file of the same tag gets the name, and the first one that of the other.
    fn exchange(&mut self, tag: u64, name: &str, blocks: u64) -> io::Result<Vec<u64>> {
        let beside = format!("s-{tag}-beside");
        let other = self.create(&beside)?;
        let stamps = self.fill(&other, tag, blocks)?;
        other.sync_all()?;
        if self.load.apart {
            self.load.promises.change(tag, |p| p.names.clear());
        }
        rustix::fs::renameat_with(CWD, self.path(name), CWD, self.path(&beside), RenameFlags::EXCHANGE)?;
        self.make_durable(&other, name)?;
        self.load.promises.change(tag, |p| p.names = vec![name.to_owned()]);
        Ok(stamps)
    }

    /// The data of another file of the same tag, maybe in the same blocks; and then some of its own.
    fn copy(&mut self, tag: u64, file: &File, blocks: u64) -> io::Result<Vec<u64>> {
        let from = self.create(&format!("s-{tag}-from"))?;
        let mut stamps = self.fill(&from, tag, blocks)?;
        let (length, mut at) = (blocks as usize * BLOCK, 0);
        while at < length as u64 {
            let (mut here, mut there) = (at, at);
            match rustix::fs::copy_file_range(&from, Some(&mut here), file, Some(&mut there), length - at as usize)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                copied => at += copied as u64,
            }
        }
        file.sync_all()?;
        self.load.promises.change(tag, |p| p.stamps.clone_from(&stamps));
        let first = self.fill(file, tag, 1)?;
        file.sync_data()?;
        stamps.splice(..1, first);
        Ok(stamps)
    }

    /// A file that has its data before it has a name.
    pub(super) fn name_late(&mut self) -> io::Result<()> {
        let tag = self.load.tag();
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(&self.dir, flags, Mode::from_raw_mode(0o600))?);
        let stamps = self.fill(&file, tag, 3)?;
        file.sync_all()?;
        let (own, name) = (format!("/proc/self/fd/{}", file.as_raw_fd()), format!("s-{tag}"));
        rustix::fs::linkat(CWD, own, CWD, self.path(&name), AtFlags::SYMLINK_FOLLOW)?;
        self.make_durable(&file, &name)?;
        self.load.promises.change(tag, |p| (p.names, p.stamps) = (vec![name], stamps));
        Ok(())
    }
}
