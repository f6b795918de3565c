//! What debugfs' `lru_gen` tells: the generations of each control group on each memory node.

use crate::generations::Generation;

/// One control group on one memory node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vector {
    /// The kernel's number of the group.
    pub memcg: u64,
    /// Its path in the hierarchy.
    pub path: String,
    /// Memory node.
    pub node: u64,
    /// Age classes, youngest first.
    pub generations: Vec<Generation>,
}

impl Vector {
    /// Its name.
    pub fn key(&self) -> (u64, u64) {
        (self.memcg, self.node)
    }

    /// Its group's path; empty for the top.
    pub fn group(&self) -> &str {
        self.path.trim_end_matches('/')
    }

    /// How many pages there are in it.
    pub fn pages(&self) -> u64 {
        self.generations.iter().map(|generation| generation.pages).sum()
    }
}

/// Reads debugfs' `lru_gen`.
pub fn parse(text: &str) -> Vec<Vector> {
    let mut vectors: Vec<Vector> = Vec::new();
    let mut group = (0, String::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["memcg", id, path @ ..] => group = (id.parse().unwrap_or(0), path.join(" ")),
            ["node", node] => vectors.push(Vector {
                memcg: group.0,
                path: group.1.clone(),
                node: node.parse().unwrap_or(0),
                generations: Vec::new(),
            }),
            [sequence, age, anonymous, file, ..] => {
                let number = |word: &str| word.parse::<i64>().unwrap_or(0).max(0) as u64;
                if let (Ok(sequence), Some(vector)) = (sequence.parse(), vectors.last_mut()) {
                    let pages = number(anonymous) + number(file);
                    vector.generations.insert(0, Generation { sequence, age_ms: number(age), pages });
                }
            }
            _ => {}
        }
    }
    vectors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debugfs_text_is_read_youngest_first() {
        let text = "memcg     1 /\n node     0\n          0       2000        100          7 \n          1       1000         50         -3 \n\
                    memcg     8 /user slice/x\n node     0\n          4       1000         50          3 \n";
        let vectors = parse(text);
        assert_eq!(vectors.len(), 2);
        assert_eq!(
            vectors[0].generations,
            [Generation { sequence: 1, age_ms: 1000, pages: 50 }, Generation { sequence: 0, age_ms: 2000, pages: 107 }]
        );
        assert_eq!((vectors[1].memcg, vectors[1].path.as_str()), (8, "/user slice/x"));
    }
}
