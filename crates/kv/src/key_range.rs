//! Which keys a scan covers.

/// The first key at which a scan of `prefix` from `from` can find something.
pub(crate) fn first_key<'a>(prefix: &'a [u8], from: &'a [u8]) -> &'a [u8] {
    if from > prefix { from } else { prefix }
}

/// The smallest key above all keys that begin with `prefix`; none when no key is.
pub(crate) fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut end = prefix[..=kept].to_vec();
    end[kept] += 1;
    Some(end)
}

/// The smallest key greater than `key`, written over `into`.
pub(crate) fn successor(key: &[u8], into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(key);
    into.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_above_all_its_keys_and_below_the_next() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }
}
