//! FUSE over io_uring (7.42): the buffers of a ring entry and the command in the second half of a 128-byte SQE.

use super::wire;

wire! {
    /// `struct fuse_uring_ent_in_out`
    EntInOut { flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64 }
    /// `struct fuse_uring_req_header`
    ReqHeader { in_out: [u8; 128], op_in: [u8; 128], ring_ent_in_out: EntInOut }
    /// `struct fuse_uring_cmd_req`
    CmdReq { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6] }
}

/// Registers an entry's buffers and waits for its first request.
pub const CMD_REGISTER: u32 = 1;
/// Gives back a reply and waits for the next request.
pub const CMD_COMMIT_AND_FETCH: u32 = 2;
