use mez_testbed::scenario_file::Scenario;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let text = std::fs::read_to_string(&args[1]).unwrap();
    let scenario: Scenario = text.parse().unwrap();
    let first: u64 = args[2].parse().unwrap();
    let n: u64 = args[3].parse().unwrap();
    let verbose = args.len() > 4;
    let mut bad = 0;
    for seed in first..first + n {
        match scenario.run(seed) {
            Err(failure) => { println!("seed {seed}: BROKEN {failure}"); bad += 1; }
            Ok(report) => {
                bad += u64::from(!report.missed().is_empty());
                if verbose { for seen in &report.seen {
                    println!("seed {seed}: {} frames {} on_time {} first {:?} p50 {:?} p95 {:?} gap {:?}", seen.subscription, seen.frames, seen.on_time, seen.first_age, seen.age_p50, seen.age_p95, seen.gap);
                } }
                for missed in report.missed() { println!("seed {seed}: {missed}"); }
            }
        }
    }
    println!("{bad} of {n} seeds");
}
