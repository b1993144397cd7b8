use mez_core::contract::Contract;
use mez_testbed::{ApplicationSpec, CameraSpec, Footage, Moment, World, ms, secs};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let seed: u64 = args[1].parse().unwrap();
    let rate: u64 = args[2].parse().unwrap();
    let both = args[3] == "both";
    let verbose = args.len() > 4;
    let mut world = World::seeded(seed); world.codecs_fail(false);
    let profile = world.profile(Footage::PEDESTRIANS.profile().unwrap());
    let mut spec = CameraSpec::filming(Footage::PEDESTRIANS).at_rate(rate);
    let fps: u64 = std::env::var("FPS").map_or(15, |f| f.parse().unwrap()); spec.interval = std::time::Duration::from_nanos(1_000_000_000 / fps); spec.link.delay_up = ms(4); spec.link.delay_down = ms(4); spec.link.queue_bytes_max = 64_000;
    world.camera("dock/cam1", spec);
    let env = |n: &str, d: f64| std::env::var(n).map_or(d, |v| v.parse().unwrap()); let (ab, af, bf) = (env("AB", 60.0) as u64, env("AF", 0.85), env("BF", 0.99)); let c = |b, a, p| Contract { latency_bound: Some(ms(b)), accuracy_floor: Some(a), profile: Some(profile), priority: p, ..Contract::default() };
    let a = world.application(ApplicationSpec { contract: c(ab, af, 1), ..ApplicationSpec::newest("dock/*") });
    let b = both.then(|| world.application(ApplicationSpec { contract: c(1000, bf, 0), ..ApplicationSpec::newest("dock/*") }));
    world.run(secs(32));
    for (name, id) in [("A", Some(a)), ("B", b)] {
        let Some(id) = id else { continue };
        let bound = if name == "A" { ms(ab) } else { ms(1000) };
        let got = world.deliveries_since(id, Moment::START + secs(2));
        println!("{name}: {} of {} on time", got.iter().filter(|g| g.age() <= bound).count(), got.len());
        if verbose {
            for g in world.deliveries(id) { println!("  {} {} age {:?} {:?} {:?}", g.at, g.frame, g.age(), g.rung, g.verdict.as_ref().map(|v| (v.state, v.infeasible))); }
        }
        if !verbose { continue; } for change in world.contract_changes(id) { println!("{name} {} {:?} {}", change.at, change.change.state, change.change.reason); }
    }
}
