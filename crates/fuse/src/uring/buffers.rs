//! Memory that the kernel writes a request to and reads a reply from.
//!
//! The kernel holds addresses in it from the registration of the entry to its end, but touches it only while the
//! entry is the kernel's: between a submitted command and its completion. [`super::queue`] reads and writes it only
//! while the entry is ours, and never unmaps it while it is not.

use crate::abi::{self, OUT_HEADER, OutHeader, ring::ReqHeader};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::io;
use std::ptr::NonNull;

/// The headers have a page of their own; the payload starts page-aligned after it.
const PAYLOAD: usize = 4096;
/// Where in the header page the two I/O vectors are that a registration points to.
const VECTORS: usize = 1024;

/// One entry's headers and payload.
pub(crate) struct Buffers {
    /// Start of the mapping, so aligned to a page.
    memory: NonNull<ReqHeader>,
    payload: usize,
}

// SAFETY: the memory belongs to this value alone (and to the kernel, as the module says); any thread may use it.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Fresh memory for payloads of up to `payload` bytes. Pages cost nothing until they are used.
    pub fn new(payload: usize) -> io::Result<Self> {
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let memory = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                PAYLOAD.checked_add(payload).ok_or(io::ErrorKind::OutOfMemory)?,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        let base = memory.cast::<u8>();
        // SAFETY: both vectors lie inside the header page just mapped, suitably aligned; nobody else knows of it yet.
        unsafe {
            let vectors = memory.byte_add(VECTORS).cast::<libc::iovec>();
            vectors.write(libc::iovec { iov_base: base.cast(), iov_len: size_of::<ReqHeader>() });
            vectors.add(1).write(libc::iovec { iov_base: base.add(PAYLOAD).cast(), iov_len: payload });
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory, payload })
    }

    /// Address of the I/O vectors, for a registration.
    pub fn vectors(&self) -> u64 {
        self.memory.as_ptr() as u64 + VECTORS as u64
    }

    /// The request the kernel left. Only while the entry is ours.
    pub fn request(&self) -> (&ReqHeader, &[u8]) {
        let base = self.memory.as_ptr();
        let payload = base.cast::<u8>().wrapping_add(PAYLOAD);
        // SAFETY: both ranges lie inside the mapping, any bytes are values of both types, and the kernel leaves them
        // alone while the entry is ours, which callers see to.
        unsafe { (&*base, std::slice::from_raw_parts(payload, self.payload)) }
    }

    /// Leaves a reply for the kernel; gives back the identity to commit it under. Only while the entry is ours.
    pub fn reply(&mut self, errno: i32, body: &[u8]) -> u64 {
        let base = self.memory.as_ptr();
        let payload = base.cast::<u8>().wrapping_add(PAYLOAD);
        // SAFETY: as in `request`, and `&mut self` excludes other references into the mapping.
        let (header, payload) = unsafe { (&mut *base, std::slice::from_raw_parts_mut(payload, self.payload)) };
        let unique = abi::read::<abi::InHeader>(&header.in_out).map_or(0, |it| it.unique);
        let (errno, length) = if body.len() <= payload.len() { (errno, body.len()) } else { (libc::EIO, 0) };
        payload[..length].copy_from_slice(&body[..length]);
        let out = OutHeader { len: (OUT_HEADER + length) as u32, error: -errno, unique };
        let _ = abi::write(&out, &mut header.in_out);
        header.ring_ent_in_out.payload_sz = length as u32;
        header.ring_ent_in_out.commit_id
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: exactly what `new` mapped; no reference into it outlives `self`.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), PAYLOAD + self.payload) };
    }
}
