//! Attributes of files that some file systems have beside those of stat(2) (`FS_IOC_FSGETXATTR`).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `_IOR('X', 31, struct fsxattr)` and `_IOW('X', 32, struct fsxattr)`.
const FS_IOC_FSGETXATTR: libc::c_ulong = 0x801c_581f;
const FS_IOC_FSSETXATTR: libc::c_ulong = 0x401c_5820;
/// `FS_XFLAG_EXTSIZE`.
const EXTENT_SIZE: u32 = 0x800;
/// `FS_XFLAG_COWEXTSIZE`.
const COPY_EXTENT_SIZE: u32 = 0x10000;

#[repr(C)]
#[derive(Default)]
struct Fsxattr {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    padding: [u8; 8],
}

/// The size in bytes in which a file asks for its extents, if it was told one.
///
/// # Errors
/// ENOTTY or EOPNOTSUPP where there is no such thing.
pub fn extent_size(file: &File) -> io::Result<Option<u32>> {
    let attributes = get(file)?;
    Ok((attributes.flags & EXTENT_SIZE != 0).then_some(attributes.extent_size))
}

/// Tells a file without any extents the size in bytes to ask for them in.
///
/// # Errors
/// As for [`extent_size`].
pub fn set_extent_size(file: &File, size: u32) -> io::Result<()> {
    let mut attributes = get(file)?;
    attributes.flags |= EXTENT_SIZE;
    attributes.extent_size = size;
    set(file, &attributes)
}

/// Tells a file the size in bytes in which to ask for the extents that shared ones are copied to. Gives back whether it was told
/// another one, or none, before.
///
/// # Errors
/// As for [`extent_size`].
pub fn set_copy_extent_size(file: &File, size: u32) -> io::Result<bool> {
    let mut attributes = get(file)?;
    if attributes.flags & COPY_EXTENT_SIZE != 0 && attributes.cow_extent_size == size {
        return Ok(false);
    }
    attributes.flags |= COPY_EXTENT_SIZE;
    attributes.cow_extent_size = size;
    set(file, &attributes).map(|()| true)
}

/// The project of a file; 0 without one.
pub(crate) fn project(file: &File) -> io::Result<u32> {
    Ok(get(file)?.project)
}

/// Gives a file to a project.
pub(crate) fn set_project(file: &File, project: u32) -> io::Result<()> {
    let mut attributes = get(file)?;
    attributes.project = project;
    set(file, &attributes)
}

fn get(file: &File) -> io::Result<Fsxattr> {
    let mut attributes = Fsxattr::default();
    // SAFETY: the kernel writes one structure of this layout, which outlives the call.
    match unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FSGETXATTR, &raw mut attributes) } {
        0 => Ok(attributes),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set(file: &File, attributes: &Fsxattr) -> io::Result<()> {
    // SAFETY: the kernel reads one structure of this layout, which outlives the call.
    match unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FSSETXATTR, std::ptr::from_ref(attributes)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_is_as_large_as_the_kernels() {
        assert_eq!(size_of::<Fsxattr>(), 28);
    }
}
