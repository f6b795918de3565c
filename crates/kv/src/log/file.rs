//! A log file on a file system.

use super::medium::Medium;
use super::{BLOCK, buffer::AlignedBuffer};
use rustix::fs::{AtFlags, IFlags, Mode, OFlags, StatxFlags, ioctl_getflags, ioctl_setflags, statx};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Bytes written at a time while a file is filled with zeros.
const FILL_BYTES: usize = 1 << 20;

/// File systems whose fsync(2) of any file flushes the device's cache, whatever there was to write.
const EXT4: u64 = 0xef53;
const XFS: u64 = 0x5846_5342;

/// A preallocated file whose writes return once they survive a power cut.
///
/// Writing takes one flush of the device and no journal commit of the file system, because the file was filled
/// with zeros first: neither its size nor its extents ever change again.
#[derive(Debug)]
pub struct FileMedium {
    /// Opened `O_DSYNC`, and `O_DIRECT` where the file system takes it.
    durable: File,
    /// The same without `O_DSYNC`.
    writer: File,
    reader: File,
    device: Option<u64>,
    len: u64,
}

impl FileMedium {
    /// Opens the file at `path`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let reader = File::open(path)?;
        let len = reader.metadata()?.len();
        let open = |more| rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC | more, Mode::empty());
        let direct = open(OFlags::DIRECT | OFlags::DSYNC).and_then(|durable| Ok((durable, open(OFlags::DIRECT)?)));
        let is_direct = direct.is_ok();
        let (durable, writer) = match direct {
            Ok(both) => both,
            Err(_) => (open(OFlags::DSYNC)?, open(OFlags::empty())?),
        };
        let flushes = matches!(rustix::fs::fstatfs(&reader)?.f_type as u64, EXT4 | XFS);
        let device = (is_direct && flushes && is_written_directly(&reader))
            .then(|| reader.metadata().map(|metadata| metadata.dev()))
            .transpose()?;
        Ok(Self { durable: File::from(durable), writer: File::from(writer), reader, device, len })
    }

    /// Makes a file of `len` zeros at `path`, durably; replaces what is there in one step. Where there is no room for it, it takes none.
    pub fn create(path: &Path, len: u64) -> io::Result<()> {
        let new = path.with_extension("new");
        let made = Self::fill(&new, len).and_then(|()| fs::rename(&new, path));
        made.inspect_err(|_| {
            let _ = fs::remove_file(&new);
        })?;
        sync_dir_of(path)
    }

    fn fill(path: &Path, len: u64) -> io::Result<()> {
        let file = File::create(path)?;
        // A copy-on-write file system would allocate on every write; refusing this is no failure.
        if let Ok(flags) = ioctl_getflags(&file) {
            let _ = ioctl_setflags(&file, flags | IFlags::NOCOW);
        }
        let mut zeros = AlignedBuffer::default();
        zeros.reset(FILL_BYTES);
        zeros.pad_to(FILL_BYTES);
        let mut offset = 0;
        while offset < len {
            let n = (len - offset).min(FILL_BYTES as u64);
            file.write_all_at(&zeros.bytes()[..n as usize], offset)?;
            offset += n;
        }
        file.sync_all()
    }
}

/// Whether what is written with `O_DIRECT` goes past the page cache in fact. ext4 takes such an open for any file, and keeps what is written in
/// memory where it has data in its journal, or encrypts it. Before Linux 6.1 nobody says so.
fn is_written_directly(file: &File) -> bool {
    let said = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    said.is_ok_and(|it| it.stx_mask & StatxFlags::DIOALIGN.bits() != 0 && it.stx_dio_offset_align > 0)
}

/// Makes the names in the directory of `path` durable.
pub(crate) fn sync_dir_of(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

impl Medium for FileMedium {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        debug_assert!(offset.is_multiple_of(BLOCK as u64) && bytes.len().is_multiple_of(BLOCK));
        self.writer.write_at(bytes, offset)
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.reader.read_at(into, offset)
    }

    fn write_durably_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.durable.write_at(bytes, offset)
    }

    fn device(&self) -> Option<u64> {
        self.device
    }

    fn is_in_place(&self, offset: u64, length: u64) -> bool {
        ullage_extents::written_bytes(&self.reader, offset..offset + length).is_ok_and(|written| written == length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.writer.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }
}
