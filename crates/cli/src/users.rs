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
    let told = asked(&[name.to_owned()]);
    let uid = match &told {
        // Whatever it calls him: a directory of a company's knows users by several names, and answers with one.
        Ok(told) => users(told).next().map(|(_, uid)| uid),
        Err(_) => {
            let all = listed().context("cannot read /etc/passwd")?;
            users(&all).find(|(other, _)| *other == name).map(|(_, uid)| uid)
        }
    };
    uid.with_context(|| format!("there is no user '{name}'; give a name that `getent passwd` knows, or a number"))
}

/// The names of users that have one.
pub struct Names(BTreeMap<u32, String>);

impl Names {
    /// Looks all of them up, in one call.
    pub fn of(uids: impl IntoIterator<Item = u32>) -> Self {
        let numbers: Vec<_> = uids.into_iter().map(|uid| uid.to_string()).collect();
        // A number in place of a name is no error: the user may be long gone.
        let entries = if numbers.is_empty() { Ok(String::new()) } else { asked(&numbers).or_else(|_| listed()) };
        Self(users(&entries.unwrap_or_default()).map(|(name, uid)| (uid, name.to_owned())).collect())
    }

    /// The name, or else the number.
    pub fn show(&self, uid: u32) -> String {
        self.0.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }
}

/// What the system knows of these users, as lines of passwd(5). An error where it has nobody to ask.
fn asked(keys: &[String]) -> std::io::Result<String> {
    let told = Command::new("getent").args(["passwd", "--"]).args(keys).output()?;
    Ok(String::from_utf8_lossy(&told.stdout).into_owned())
}

/// All users of this machine's own, where there is no getent(1).
fn listed() -> std::io::Result<String> {
    std::fs::read_to_string("/etc/passwd")
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
