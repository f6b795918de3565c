//! `cargo run --release -p ullage-sim --example study -- DIR RUNS TIME SCIENTIFIC_TIME [FIGURE [THREADS]]`: the paper's
//! figures, without the command line tool.

use ullage_sim::study::{Scale, study};

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: f64| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    let directory = std::path::PathBuf::from(arguments.first().map_or("out", String::as_str));
    std::fs::create_dir_all(&directory)?;
    let scale = Scale {
        runs: number(1, 10.0) as u32,
        time: number(2, 1.0),
        scientific_time: number(3, 1.0),
        threads: number(5, 2.0) as usize,
        ..Scale::PAPER
    };
    study(scale, arguments.get(4).map(String::as_str), &mut |figure| {
        println!("{}: {}", figure.name, figure.verdict);
        figure.chart.svg().map_err(std::io::Error::other).and_then(|svg| {
            std::fs::write(directory.join(format!("{}.svg", figure.name)), svg)?;
            let text = serde_json::json!({"version": 1, "scale": scale, "figure": figure});
            std::fs::write(directory.join(format!("{}.json", figure.name)), format!("{text:#}\n"))
        })
    })
}
