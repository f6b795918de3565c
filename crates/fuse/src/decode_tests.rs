//! The decoder is total: whatever the bytes, it gives a request or an error.

use crate::abi::{self, IN_HEADER, InHeader, opcode};
use crate::decode::decode;
use crate::message::{Dialect, Malformed, Message};
use crate::request::Request;
use proptest::prelude::*;
use ullage_fs::Errno;

const EXTENDED: Dialect = Dialect { setxattr_ext: true };

/// A device message: header with the right length, then the body.
fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
    let header = InHeader { len: (IN_HEADER + body.len()) as u32, opcode, unique: 7, nodeid: 1, ..InHeader::default() };
    let mut bytes = vec![0; IN_HEADER];
    abi::write(&header, &mut bytes).unwrap();
    bytes.extend_from_slice(body);
    bytes
}

fn decoded(bytes: &[u8]) -> Result<Request<'_>, Errno> {
    decode(&Message::from_device(bytes, EXTENDED).expect("well-formed"), EXTENDED)
}

#[test]
fn a_length_that_is_not_the_messages_is_malformed() {
    let mut bytes = message(opcode::LOOKUP, b"name\0");
    bytes.push(0);
    assert_eq!(Message::from_device(&bytes, EXTENDED).unwrap_err(), Malformed { unique: Some(7) });
    assert_eq!(Message::from_device(&bytes[..39], EXTENDED).unwrap_err(), Malformed { unique: None });
    assert_eq!(Message::from_device(&[], EXTENDED).unwrap_err(), Malformed { unique: None });
}

#[test]
fn names_need_their_nul_and_a_byte() {
    assert!(matches!(decoded(&message(opcode::LOOKUP, b"name\0")), Ok(Request::Lookup { name: b"name" })));
    assert_eq!(decoded(&message(opcode::LOOKUP, b"name")).unwrap_err(), Errno(libc::EINVAL));
    assert_eq!(decoded(&message(opcode::LOOKUP, b"\0")).unwrap_err(), Errno(libc::EINVAL));
    assert_eq!(decoded(&message(opcode::SYMLINK, b"name\0")).unwrap_err(), Errno(libc::EINVAL));
    let both = message(opcode::SYMLINK, b"name\0target\0");
    assert!(matches!(decoded(&both), Ok(Request::Symlink { name: b"name", target: b"target" })));
}

#[test]
fn a_write_carries_as_much_as_it_says() {
    let mut argument = [0; 40];
    argument[16] = 5;
    let right = [&argument[..], b"12345"].concat();
    assert!(matches!(decoded(&message(opcode::WRITE, &right)), Ok(Request::Write { data: b"12345", .. })));
    for wrong in [&b"1234"[..], b"123456", b""] {
        let bytes = message(opcode::WRITE, &[&argument[..], wrong].concat());
        assert_eq!(decoded(&bytes).unwrap_err(), Errno(libc::EINVAL));
    }
}

#[test]
fn a_batch_of_forgets_holds_as_many_as_it_says() {
    let entry = [[1, 0, 0, 0, 0, 0, 0, 0], [9, 0, 0, 0, 0, 0, 0, 0]].concat();
    let count = |count: u32| [&count.to_ne_bytes()[..], &[0; 4], &entry].concat();
    let bytes = message(opcode::BATCH_FORGET, &count(1));
    let Ok(Request::BatchForget(forgets)) = decoded(&bytes) else { panic!("not a batch") };
    assert_eq!(forgets.iter().map(|(node, count)| (node.0, count)).collect::<Vec<_>>(), [(1, 9)]);
    for wrong in [2, u32::MAX] {
        assert_eq!(decoded(&message(opcode::BATCH_FORGET, &count(wrong))).unwrap_err(), Errno(libc::EINVAL));
    }
}

#[test]
fn unknown_opcodes_are_requests_too() {
    for code in [0, 7, 19, 48, 54, 4096, u32::MAX] {
        assert!(matches!(decoded(&message(code, b"anything")), Ok(Request::Unknown)), "{code}");
    }
}

#[test]
fn setxattr_has_two_forms() {
    let short = [&[5, 0, 0, 0, 1, 0, 0, 0][..], b"user.a\0value"].concat();
    let long = [&[5, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0][..], b"user.a\0value"].concat();
    for (dialect, body, killed) in [(Dialect { setxattr_ext: false }, short, None), (EXTENDED, long, Some(true))] {
        let bytes = message(opcode::SETXATTR, &body);
        let it = decode(&Message::from_device(&bytes, dialect).unwrap(), dialect).unwrap();
        let Request::Setxattr { name: b"user.a", value: b"value", flags: 1, kill_setgid } = it else {
            panic!("{it:?}")
        };
        assert_eq!(kill_setgid, killed);
    }
}

#[test]
fn every_argument_cut_short_is_refused() {
    for &(name, code) in opcode::ALL {
        let full = message(code, &[0; 256]);
        let Ok(whole) = Message::from_device(&full, EXTENDED) else { continue };
        for length in 0..whole.argument.len() {
            let bytes = message(code, &full[IN_HEADER..IN_HEADER + length]);
            let refused = Message::from_device(&bytes, EXTENDED).is_err();
            // INIT of old kernels is shorter, and so is a valid message.
            assert!(refused || code == opcode::INIT, "{name} with {length} bytes");
        }
    }
}

/// Bytes that are nothing, or nearly something.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let body = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..300),
        prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255), Just(b'a')], 0..120),
    ];
    let code = prop_oneof![0..opcode::COUNT as u32 + 2, any::<u32>()];
    (code, body, prop::option::of((any::<prop::sample::Index>(), any::<u8>()))).prop_map(|(code, body, mutation)| {
        let mut bytes = message(code, &body);
        if let Some((at, to)) = mutation {
            let at = at.index(bytes.len());
            bytes[at] = to;
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in bytes(), setxattr_ext: bool) {
        crate::fuzz_decode(&bytes, setxattr_ext);
    }

    #[test]
    fn random_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        crate::fuzz_decode(&bytes, true);
    }

    /// The same request means the same over the device and over a ring.
    #[test]
    fn both_transports_decode_alike(bytes in bytes()) {
        let Ok(device) = Message::from_device(&bytes, EXTENDED) else { return Ok(()) };
        prop_assume!(device.argument.len() <= 128);
        let mut area = abi::ring::ReqHeader::default();
        area.in_out[..IN_HEADER].copy_from_slice(&bytes[..IN_HEADER]);
        area.op_in[..device.argument.len()].copy_from_slice(device.argument);
        area.ring_ent_in_out.payload_sz = device.rest.len() as u32;
        let ring = Message::from_ring(&area, device.rest).unwrap();
        prop_assert_eq!(
            format!("{:?}", decode(&device, EXTENDED)),
            format!("{:?}", decode(&ring, EXTENDED))
        );
    }

    /// Lengths a ring entry claims never reach beyond its buffers.
    #[test]
    fn ring_lengths_are_checked(len: u32, payload_sz: u32, room in 0usize..64) {
        let mut area = abi::ring::ReqHeader::default();
        let header = InHeader { len, opcode: opcode::LOOKUP, unique: 3, ..InHeader::default() };
        abi::write(&header, &mut area.in_out).unwrap();
        area.ring_ent_in_out.payload_sz = payload_sz;
        let payload = vec![0; room];
        if let Ok(message) = Message::from_ring(&area, &payload) {
            prop_assert_eq!(message.rest.len(), payload_sz as usize);
            prop_assert_eq!(IN_HEADER + message.argument.len() + message.rest.len(), len as usize);
            let _ = decode(&message, EXTENDED);
        }
    }
}
