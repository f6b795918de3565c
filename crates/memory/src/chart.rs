//! The LRU histogram as a chart for the terminal (the paper's figure 2).

use crate::PAGE;
use crate::histogram::Histogram;
use std::fmt::Write;
use ullage_types::Bytes;

/// Rows of the chart.
const ROWS: u64 = 24;

/// Width of the bars.
const WIDTH: usize = 50;

/// Draws hits by memory size over all of memory, and marks what opaque work keeps.
pub fn histogram(histogram: &Histogram, total_pages: u64, opaque_limit_pages: u64) -> String {
    let all = histogram.total();
    if all <= 0.0 {
        return "nothing seen yet: the histogram is primed at the end of the first period with activity\n".into();
    }
    let mut text = String::from("   memory   accesses that would hit in so much memory\n");
    let mut marked = false;
    for row in 1..=ROWS {
        let pages = total_pages * row / ROWS;
        let misses = histogram.misses_in(pages) / all;
        let bar = "█".repeat(((1.0 - misses) * WIDTH as f64).round() as usize);
        let hits = if misses > 0.0 && misses < 0.000_05 {
            "<100 %".into()
        } else {
            format!("{:.2} %", 100.0 * (1.0 - misses))
        };
        let mark = if !marked && pages >= opaque_limit_pages { "  <- opaque limit" } else { "" };
        marked |= !mark.is_empty();
        let _never_fails = writeln!(text, "{:>9}  {bar:<WIDTH$} {hits}{mark}", Bytes(pages * PAGE).to_string());
    }
    let beyond = histogram.misses_in(total_pages) / all;
    let _never_fails = writeln!(text, "   beyond  {:.4} % of accesses miss in all of memory", 100.0 * beyond);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart_marks_the_limit_once_and_says_when_there_is_nothing() {
        let mut seen = Histogram::for_memory(4096);
        assert!(histogram(&seen, 4096, 0).contains("nothing seen yet"));
        seen.add(1000, 10.0);
        let text = histogram(&seen, 4096, 1024);
        assert_eq!(text.matches("opaque limit").count(), 1);
        assert_eq!(text.lines().count(), ROWS as usize + 2);
    }
}
