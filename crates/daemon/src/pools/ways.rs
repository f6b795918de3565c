//! How limited files are written in a pool, and why so, for people and programs.

use crate::control::messages::Way;
use ullage_fs::Space;
use ullage_pool::{Description, Fences, Pool};

/// What is known of writing limited files in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lending {
    /// All data moves through the server.
    NoPassthrough,
    /// To be tried at the first file.
    Untried,
    Able,
    Unable,
}

/// Of a pool: in a sentence, and way by way.
pub(crate) fn limits(space: &Space, pool: &dyn Pool, description: &Description) -> (String, Vec<Way>) {
    let lending = match space.lends() {
        _ if !space.uses_passthrough() || !pool.moves_in_kernel() => Lending::NoPassthrough,
        None => Lending::Untried,
        Some(true) => Lending::Able,
        Some(false) => Lending::Unable,
    };
    let fences = pool.fences().map(Fences::binds_root);
    let (kind, fs_type) = (description.kind, description.fs_type.as_deref());
    (describe(kind, fs_type, lending, fences), each(kind, fs_type, lending, fences))
}

/// The three ways (DESIGN, "Exact limits on a data path we don't see"), best first.
fn each(kind: &str, fs_type: Option<&str>, lending: Lending, fences: Result<bool, &str>) -> Vec<Way> {
    let way = |way: &str, used, why: &str| Way { way: way.to_owned(), used, why: why.to_owned() };
    if kind == "null" {
        return vec![way("server", Some(true), "it takes no data")];
    }
    let known = matches!(fs_type, Some("tmpfs" | "btrfs" | "ext4" | "xfs"));
    let (mediated, why) = match lending {
        Lending::NoPassthrough => (Some(false), "no data moves in the kernel here"),
        Lending::Unable => (Some(false), "this kernel was tried and lets no write be refused"),
        _ if !known => (Some(false), "it is not known what the file system below allocates ahead"),
        Lending::Untried => (None, "it was not tried yet whether this kernel lets writes be refused"),
        Lending::Able => (Some(true), "this kernel was tried and lets writes be refused"),
    };
    let (quota, because) = match fences {
        Err(reason) => (Some(false), reason),
        Ok(_) if mediated == Some(false) => (Some(false), why),
        Ok(true) => (mediated, "it stops what is stored into mappings"),
        Ok(false) => (mediated, "it stops what is stored into mappings, but not root"),
    };
    vec![
        way("kernel-quota", quota, because),
        way("mediated", mediated, why),
        way("server", Some(true), "what the other ways do not cover, and everything near a limit"),
    ]
}

/// `fences`: whether the kernel's own quota stops root too, or why there is none.
fn describe(kind: &str, fs_type: Option<&str>, lending: Lending, fences: Result<bool, &str>) -> String {
    if kind == "null" {
        return "no data, nothing to limit but inodes".to_owned();
    }
    let counts = match fs_type {
        Some(below @ ("tmpfs" | "btrfs")) => format!("{below} counts blocks at the write"),
        below => format!(
            "its blocks are asked for before they are counted, since {} counts some of them only later",
            below.unwrap_or("the file system below")
        ),
    };
    let lent = match (fs_type, lending) {
        (_, Lending::NoPassthrough) => "nothing is lent, since no data moves in the kernel here".to_owned(),
        (_, Lending::Unable) => "nothing is lent, since this kernel was tried and lets no write be refused".to_owned(),
        (Some(below @ ("tmpfs" | "btrfs" | "ext4" | "xfs")), _) => {
            let which = if below == "xfs" { ", and was empty then," } else { "" };
            let tried = if lending == Lending::Untried {
                " (if this kernel lets writes be refused: not tried yet)"
            } else {
                ""
            };
            format!(
                "where there is plenty of room, what is opened only to be written{which} is written in the kernel, with 2.6 GiB \
                 granted in advance{tried}"
            )
        }
        _ => "nothing is lent, since it is not known what it allocates ahead".to_owned(),
    };
    let fenced = match (fences, lending) {
        (_, Lending::NoPassthrough | Lending::Unable) => String::new(),
        (Ok(all), _) => format!(
            "; so is what {} opens to be read and written, since the kernel's own quota stops what is stored into mappings",
            if all { "anybody" } else { "anybody but root" }
        ),
        (Err(why), _) => {
            format!(
                "; the kernel's own quota, which would let what is opened to be read and written be lent room too, is not used: {why}"
            )
        }
    };
    format!("exact: every write to a limited file goes through the server; {counts}; {lent}{fenced}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_has_its_reason() {
        let none = Err("project quotas are off");
        let of = |below, lending| describe("dir", Some(below), lending, none);
        assert!(of("ext4", Lending::Able).ends_with("is not used: project quotas are off"));
        let fenced = |all| describe("dir", Some("xfs"), Lending::Able, Ok(all));
        assert!(fenced(true).contains("what anybody opens to be read and written"));
        assert!(fenced(false).contains("what anybody but root opens"));
        assert!(of("xfs", Lending::Untried).contains("was empty then"));
        assert!(of("xfs", Lending::Untried).contains("not tried yet"));
        assert!(of("btrfs", Lending::Unable).contains("tried and lets no write be refused"));
        assert!(of("tmpfs", Lending::NoPassthrough).contains("no data moves in the kernel"));
        assert!(of("nfs", Lending::Able).contains("not known"));
        assert!(!describe("null", None, Lending::Able, none).contains("exact"));
    }

    #[test]
    fn programs_are_told_which_ways_are_used() {
        let used = |below, lending, fences| -> Vec<Option<bool>> {
            each("dir", Some(below), lending, fences).into_iter().map(|way| way.used).collect()
        };
        let (yes, no, unknown) = (Some(true), Some(false), None);
        assert_eq!(used("xfs", Lending::Able, Ok(true)), [yes, yes, yes]);
        assert_eq!(used("ext4", Lending::Able, Err("off")), [no, yes, yes]);
        assert_eq!(used("ext4", Lending::Untried, Ok(false)), [unknown, unknown, yes]);
        assert_eq!(used("ext4", Lending::Unable, Ok(true)), [no, no, yes]);
        assert_eq!(used("nfs", Lending::Able, Err("none")), [no, no, yes]);
        assert_eq!(used("tmpfs", Lending::NoPassthrough, Err("none")), [no, no, yes]);
        assert_eq!(each("null", None, Lending::Able, Err("none")).len(), 1);
    }
}
