//! Every structure against the kernel's own header, by a C program that prints sizes and offsets.

use super::{InHeader, OutHeader, init, input::*, opcode, output::*, ring};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::mem::offset_of;
use std::process::Command;

/// One line per size and offset: C expression, our value, and the minor version that brought it.
struct Table(Vec<(String, usize, u32)>);

macro_rules! layout {
    ($table:expr, $since:literal, $c:literal, $name:ty, { $($field:tt),* }) => {
        $table.0.push((format!("sizeof(struct {})", $c), size_of::<$name>(), $since));
        $($table.0.push((
            format!("offsetof(struct {}, {})", $c, stringify!($field).trim_start_matches("r#")),
            offset_of!($name, $field),
            $since,
        ));)*
    };
}

fn table() -> Table {
    let mut t = Table(Vec::new());
    layout!(t, 38, "fuse_in_header", InHeader, { len, opcode, unique, nodeid, uid, gid, pid, total_extlen });
    layout!(t, 0, "fuse_out_header", OutHeader, { len, error, unique });
    layout!(t, 0, "fuse_forget_in", ForgetIn, { nlookup });
    layout!(t, 0, "fuse_forget_one", ForgetOne, { nodeid, nlookup });
    layout!(t, 0, "fuse_batch_forget_in", BatchForgetIn, { count });
    layout!(t, 0, "fuse_getattr_in", GetattrIn, { getattr_flags, fh });
    layout!(t, 39, "fuse_statx_in", StatxIn, { getattr_flags, fh, sx_flags, sx_mask });
    layout!(t, 0, "fuse_mknod_in", MknodIn, { mode, rdev, umask });
    layout!(t, 0, "fuse_mkdir_in", MkdirIn, { mode, umask });
    layout!(t, 0, "fuse_rename_in", RenameIn, { newdir });
    layout!(t, 0, "fuse_rename2_in", Rename2In, { newdir, flags });
    layout!(t, 0, "fuse_link_in", LinkIn, { oldnodeid });
    layout!(t, 0, "fuse_setattr_in", SetattrIn, {
        valid, fh, size, lock_owner, atime, mtime, ctime, atimensec, mtimensec, ctimensec, mode, uid, gid
    });
    layout!(t, 0, "fuse_open_in", OpenIn, { flags, open_flags });
    layout!(t, 0, "fuse_create_in", CreateIn, { flags, mode, umask, open_flags });
    layout!(t, 0, "fuse_release_in", ReleaseIn, { fh, flags, release_flags, lock_owner });
    layout!(t, 0, "fuse_flush_in", FlushIn, { fh, lock_owner });
    layout!(t, 0, "fuse_read_in", ReadIn, { fh, offset, size, read_flags, lock_owner, flags });
    layout!(t, 0, "fuse_write_in", WriteIn, { fh, offset, size, write_flags, lock_owner, flags });
    layout!(t, 0, "fuse_fsync_in", FsyncIn, { fh, fsync_flags });
    layout!(t, 0, "fuse_setxattr_in", SetxattrIn, { size, flags, setxattr_flags });
    layout!(t, 0, "fuse_getxattr_in", GetxattrIn, { size });
    layout!(t, 0, "fuse_interrupt_in", InterruptIn, { unique });
    layout!(t, 0, "fuse_fallocate_in", FallocateIn, { fh, offset, length, mode });
    layout!(t, 0, "fuse_lseek_in", LseekIn, { fh, offset, whence });
    layout!(t, 0, "fuse_copy_file_range_in", CopyFileRangeIn, {
        fh_in, off_in, nodeid_out, fh_out, off_out, len, flags
    });
    layout!(t, 0, "fuse_syncfs_in", SyncfsIn, { padding });
    layout!(t, 0, "fuse_attr", Attr, {
        ino, size, blocks, atime, mtime, ctime, atimensec, mtimensec, ctimensec, mode, nlink, uid, gid, rdev, blksize,
        flags
    });
    layout!(t, 0, "fuse_attr_out", AttrOut, { attr_valid, attr_valid_nsec, attr });
    layout!(t, 0, "fuse_entry_out", EntryOut, {
        nodeid, generation, entry_valid, attr_valid, entry_valid_nsec, attr_valid_nsec, attr
    });
    layout!(t, 0, "fuse_open_out", OpenOut, { fh, open_flags });
    layout!(t, 40, "fuse_open_out", OpenOut, { backing_id });
    layout!(t, 0, "fuse_write_out", WriteOut, { size });
    layout!(t, 0, "fuse_kstatfs", Kstatfs, { blocks, bfree, bavail, files, ffree, bsize, namelen, frsize, spare });
    layout!(t, 0, "fuse_getxattr_out", GetxattrOut, { size });
    layout!(t, 0, "fuse_lseek_out", LseekOut, { offset });
    layout!(t, 45, "fuse_copy_file_range_out", CopyFileRangeOut, { bytes_copied });
    layout!(t, 0, "fuse_dirent", Dirent, { ino, off, namelen, r#type });
    layout!(t, 0, "fuse_direntplus", Direntplus, { entry_out, dirent });
    layout!(t, 39, "fuse_sx_time", SxTime, { tv_sec, tv_nsec });
    layout!(t, 39, "fuse_statx", Statx, {
        mask, blksize, attributes, nlink, uid, gid, mode, ino, size, blocks, attributes_mask, atime, btime, ctime,
        mtime, rdev_major, rdev_minor, dev_major, dev_minor
    });
    layout!(t, 39, "fuse_statx_out", StatxOut, { attr_valid, attr_valid_nsec, flags, stat });
    layout!(t, 0, "fuse_notify_inval_inode_out", NotifyInvalInode, { ino, off, len });
    layout!(t, 0, "fuse_notify_inval_entry_out", NotifyInvalEntry, { parent, namelen });
    layout!(t, 0, "fuse_notify_retrieve_out", NotifyRetrieve, { notify_unique, nodeid, offset, size });
    layout!(t, 40, "fuse_backing_map", BackingMap, { fd, flags, padding });
    layout!(t, 36, "fuse_init_in", init::InitIn, { major, minor, max_readahead, flags, flags2 });
    layout!(t, 0, "fuse_init_out", init::InitOut, {
        major, minor, max_readahead, flags, max_background, congestion_threshold, max_write, time_gran, max_pages
    });
    layout!(t, 36, "fuse_init_out", init::InitOut, { flags2 });
    layout!(t, 40, "fuse_init_out", init::InitOut, { max_stack_depth });
    layout!(t, 43, "fuse_init_out", init::InitOut, { request_timeout });
    layout!(t, 42, "fuse_uring_ent_in_out", ring::EntInOut, { flags, commit_id, payload_sz });
    layout!(t, 42, "fuse_uring_req_header", ring::ReqHeader, { in_out, op_in, ring_ent_in_out });
    layout!(t, 42, "fuse_uring_cmd_req", ring::CmdReq, { flags, commit_id, qid });
    t
}

/// When each value that is not a structure came.
fn since(name: &str) -> u32 {
    BTreeMap::from([
        ("HAS_EXPIRE_ONLY", 38),
        ("DIRECT_IO_ALLOW_MMAP", 39),
        ("PASSTHROUGH", 40),
        ("OVER_IO_URING", 42),
        ("STATX", 39),
        ("COPY_FILE_RANGE_64", 45),
    ])
    .get(name)
    .copied()
    .unwrap_or(0)
}

#[test]
fn every_structure_and_value_is_the_kernels() {
    let mut expected = table().0;
    for (name, value) in opcode::ALL {
        expected.push((format!("FUSE_{name}"), *value as usize, since(name)));
    }
    for (name, value) in init::ALL {
        expected.push((format!("FUSE_{name}"), *value as usize, since(name)));
    }
    let directory = tempfile::tempdir().unwrap();
    let mut source = String::from(
        "#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <linux/fuse.h>\nint main(void) {\n",
    );
    for (expression, _, since) in &expected {
        writeln!(
            source,
            "#if FUSE_KERNEL_MINOR_VERSION >= {since}\nprintf(\"%s\\t%llu\\n\", \"{expression}\", \
             (unsigned long long)({expression}));\n#endif"
        )
        .unwrap();
    }
    source.push_str("return 0; }\n");
    let file = directory.path().join("layout.c");
    let program = directory.path().join("layout");
    std::fs::write(&file, source).unwrap();
    let built = Command::new("cc").arg("-o").arg(&program).arg(&file).status().unwrap();
    assert!(built.success(), "cc could not build the layout program: is linux-libc-dev installed?");
    let printed = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
    let kernel: BTreeMap<&str, usize> =
        printed.lines().map(|line| line.split_once('\t').unwrap()).map(|(k, v)| (k, v.parse().unwrap())).collect();
    assert!(kernel.len() > 200, "only {} values were compared", kernel.len());
    for (expression, ours, _) in &expected {
        if let Some(theirs) = kernel.get(expression.as_str()) {
            assert_eq!(ours, theirs, "{expression}");
        }
    }
}

/// What the header of an older kernel package lacks, by the sizes in Linux 6.18's own header.
#[test]
fn structures_newer_than_the_installed_header_have_their_documented_sizes() {
    assert_eq!(size_of::<StatxIn>(), 24);
    assert_eq!(size_of::<SxTime>(), 16);
    assert_eq!(size_of::<Statx>(), 256);
    assert_eq!(size_of::<StatxOut>(), 288);
    assert_eq!(size_of::<BackingMap>(), 16);
    assert_eq!(size_of::<OpenOut>(), 16);
    assert_eq!(size_of::<CopyFileRangeOut>(), 8);
    assert_eq!(size_of::<init::InitIn>(), 64);
    assert_eq!(size_of::<init::InitOut>(), 64);
    assert_eq!(offset_of!(init::InitOut, max_stack_depth), 36);
    assert_eq!(offset_of!(init::InitOut, request_timeout), 40);
    assert_eq!(size_of::<ring::EntInOut>(), 32);
    assert_eq!(size_of::<ring::ReqHeader>(), 288);
    assert_eq!(size_of::<ring::CmdReq>(), 24);
}
