//! Names of backing files, and what a locator holds.
//!
//! A backing file is called `FILE.GENERATION`, both in hexadecimal. A generation is never used twice, so neither is
//! a name. A locator is the path of the backing file relative to the pool's root.

use crate::{Binding, Error, Locator};
use ullage_types::{FileId, Generation};

/// The name of the backing file of this binding.
pub fn of(file: FileId, generation: Generation) -> String {
    format!("{:x}.{:x}", file.0, generation.0)
}

/// What the names of drafts begin with, where a file cannot be without one: hidden, and none of a backing file's.
const DRAFT: &str = ".draft-";

/// What a draft is called, that is to have this name.
pub fn of_draft(name: &str) -> String {
    format!("{DRAFT}{name}")
}

/// Whether it is one of those.
pub fn is_draft(name: &str) -> bool {
    name.strip_prefix(DRAFT).is_some_and(|name| parse(name).is_some())
}

/// The numbers that a name carries, if it is a name of ours.
pub fn parse(name: &str) -> Option<(FileId, Generation)> {
    let (file, generation) = name.split_once('.')?;
    let hex = |text: &str| {
        let plain = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        (plain && (text == "0" || !text.starts_with('0'))).then(|| u64::from_str_radix(text, 16).ok())?
    };
    Some((FileId(hex(file)?), Generation(hex(generation)?)))
}

/// The locator of a name in a leaf.
pub fn locator(leaf: &str, name: &str) -> Locator {
    Locator([leaf.as_bytes(), b"/", name.as_bytes()].concat().into())
}

/// The leaf and the name that a locator holds; whatever else it may hold is refused, so that no damaged catalog makes
/// us touch a file outside the pool.
pub fn split(locator: &Locator) -> Option<(&str, &str)> {
    let path = std::str::from_utf8(&locator.0).ok()?;
    let (leaf, name) = path.rsplit_once('/')?;
    let harmless = path.split('/').all(|part| !part.is_empty() && !part.starts_with('.')) && !path.contains('\0');
    harmless.then_some((leaf, name))
}

/// The same for a binding, whose name must carry the binding's own numbers.
pub fn split_binding(binding: &Binding) -> Result<(&str, &str), Error> {
    split(&binding.locator)
        .filter(|(_, name)| parse(name) == Some((binding.file, binding.generation)))
        .ok_or_else(|| mismatch(binding))
}

/// The backing file is not the one that this binding means.
pub fn mismatch(binding: &Binding) -> Error {
    let path = String::from_utf8_lossy(&binding.locator.0).into_owned().into();
    Error::Mismatch { path, expected: binding.generation.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_name_carries_its_numbers(file: u64, generation: u64) {
            let name = of(FileId(file), Generation(generation));
            prop_assert_eq!(parse(&name), Some((FileId(file), Generation(generation))));
            let locator = locator("2-512/000.0/000", &name);
            prop_assert_eq!(split(&locator), Some(("2-512/000.0/000", name.as_str())));
        }
    }

    #[test]
    fn other_names_and_escaping_locators_are_refused() {
        for name in ["", ".", "1", "1.", ".1", "01.1", "1.1.1", "A.1", "+1.1", "11112222333344445.1"] {
            assert_eq!(parse(name), None, "{name}");
        }
        for path in ["a", "/a/b", "../a/b", "a/../b", "a//b", "a/.hidden", "a/b\0c"] {
            assert_eq!(split(&Locator(path.as_bytes().into())), None, "{path}");
        }
    }
}
