//! Names and numbers of users, as the system's own tools find them, wherever users are kept.

use anyhow::Context;
use std::collections::BTreeMap;
use std::process::Command;

/// The number of a user, given by name or number.
pub fn uid_of(name: &str) -> anyhow::Result<u32> {
    match name.parse() {
        Ok(u32::MAX) => anyhow::bail!("{name} is nobody's number: system calls have it for `no user`; give another"),
        Ok(uid) => return Ok(uid),
        Err(_) => {}
    }
    let entries = entries(&[name.to_owned()]).context("cannot read /etc/passwd")?;
    let found = users(&entries).find(|(other, _)| *other == name);
    found
        .map(|(_, uid)| uid)
        .with_context(|| format!("there is no user '{name}'; give a name that `getent passwd` knows, or a number"))
}

/// The names of users that have one.
pub struct Names(BTreeMap<u32, String>);

impl Names {
    /// Looks all of them up, in one call.
    pub fn of(uids: impl IntoIterator<Item = u32>) -> Self {
        let numbers: Vec<_> = uids.into_iter().map(|uid| uid.to_string()).collect();
        // A number in place of a name is no error: the user may be long gone.
        let entries = if numbers.is_empty() { String::new() } else { entries(&numbers).unwrap_or_default() };
        Self(users(&entries).map(|(name, uid)| (uid, name.to_owned())).collect())
    }

    /// The name, or else the number.
    pub fn show(&self, uid: u32) -> String {
        self.0.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }
}

/// What is known of these users, as lines of passwd(5).
fn entries(keys: &[String]) -> std::io::Result<String> {
    match Command::new("getent").args(["passwd", "--"]).args(keys).output() {
        Ok(output) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(_) => std::fs::read_to_string("/etc/passwd"),
    }
}

fn users(entries: &str) -> impl Iterator<Item = (&str, u32)> {
    entries.lines().filter_map(|line| {
        let mut fields = line.split(':');
        Some((fields.next()?, fields.nth(1)?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names_and_numbers() {
        assert_eq!(uid_of("root").unwrap(), 0);
        assert_eq!(uid_of("4711").unwrap(), 4711);
        assert!(uid_of("nobody-of-this-name").unwrap_err().to_string().contains("getent passwd"));
        let names = Names::of([0, 3_000_000_017]);
        assert_eq!((names.show(0), names.show(3_000_000_017)), ("root".into(), "3000000017".into()));
    }
}
