use mez_testbed::awstream::{Contender, Measurements, replay};
use mez_testbed::policies::setting::Queueing;
use std::time::Duration;
fn main() {
    let d = "/work/shared/data/awstream-mot/";
    let t = |n: &str| std::fs::read_to_string(format!("{d}{n}")).unwrap();
    let m = Measurements::parse(&t("mot.profile.csv"), &t("mot.source.csv"), &t("mot.stat.csv")).unwrap();
    let args: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    for c in [Contender::Quantile, Contender::Fixed(8, Queueing::Every)] {
        let r = replay(&m, c, Duration::from_millis(args[0]), args[1] as usize);
        let mut last: Option<(usize, usize)> = None;
        for (f, s) in r.results.iter().enumerate() {
            if s.rung.is_some() && s.bytes > 0 && s.latency_ms.is_some_and(|l| l <= 229.0) {
                last = Some((f, r.rows[usize::from(s.rung.unwrap())]));
            }
            let f1 = last.map_or(0.0, |(sent, row)| {
                let age = f - sent;
                let se = &m.series[row];
                let n = |x: usize| (r.begin + x) % m.frames;
                if age < m.profile[row].config.every() as usize {
                    se.f1[n(f)]
                } else {
                    se.f1[n(sent)] * m.kept(age)
                }
            });
            println!(
                "{} {f} {} {} {} {f1}",
                c.name(&m),
                s.rung.map_or(-1, |x| r.rows[usize::from(x)] as i64),
                s.bytes,
                s.latency_ms.map_or(-1.0, |x| x)
            );
        }
    }
}
