//! Parameters of a pool's layout that its owner has chosen.

use serde::{Deserialize, Serialize};
use ullage_policy::place::Sparse;

/// The parameters of COFS §4.2, where others than the usual ones were asked for: `[pool.sparse]` in `space.toml`. They may change
/// between two starts; what is there stays where it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Directory levels below which files lie: 1 to 8, usually 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u8>,
    /// Most files in a directory: 2 to 65,535, usually 512.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u16>,
    /// A group of files is spread over 2 to this power directories: 0 to 8, usually 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random_bits: Option<u8>,
}

impl Shape {
    /// Whether nothing was asked for.
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// These parameters, with those that were asked for.
    pub fn of(&self, usual: Sparse) -> Sparse {
        Sparse {
            depth: self.depth.unwrap_or(usual.depth),
            entries: self.entries.unwrap_or(usual.entries),
            random_bits: self.random_bits.unwrap_or(usual.random_bits),
            ..usual
        }
    }

    /// Takes one `KEY=VALUE` of a command line; none when it is of something else.
    pub(crate) fn take(&mut self, key: &str, value: &str) -> Option<Result<(), String>> {
        fn number<T: std::str::FromStr>(place: &mut Option<T>, key: &str, value: &str) -> Result<(), String> {
            *place = Some(value.parse().map_err(|_| format!("{key}: '{value}' is no such number"))?);
            Ok(())
        }
        let taken = match key {
            "depth" => number(&mut self.depth, key, value),
            "entries" => number(&mut self.entries, key, value),
            "random-bits" => number(&mut self.random_bits, key, value),
            _ => return None,
        };
        Some(taken.and_then(|()| self.of(Sparse::default()).validate().map_err(Into::into)))
    }
}

/// As `--pool` has it, each with a comma before it.
impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let depth = self.depth.map(u16::from);
        for (key, value) in
            [("depth", depth), ("entries", self.entries), ("random-bits", self.random_bits.map(u16::from))]
        {
            if let Some(value) = value {
                write!(f, ",{key}={value}")?;
            }
        }
        Ok(())
    }
}
