//! Holds policies that only experiments use, and that no user can choose. [`super::entrants`] names them and those of the product
//! ([`mez_core::controller::named`]).

pub mod ewma;
pub mod fixed;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mez_core::controller::{Arrival, Decision, Offer, Policy, SentFrame};
    use mez_core::frame::{Epoch, FrameId, Sequence};
    use mez_core::units::Instant;

    use super::ewma::Ewma;
    use super::fixed::Fixed;
    use crate::policies::reference::{ACCURACY_BYTES, ladder};
    use crate::random::Random;

    fn policies() -> Vec<Box<dyn Policy>> {
        vec![Box::new(Ewma::new(0.7)), Box::new(Ewma::counting_waits(0.7)), Box::new(Fixed::new(3))]
    }

    /// Whatever is reported, in whatever order, a decision is a rung of the ladder, marked if it is below the floor, or a later instant. Core has the
    /// same test for the product's policies.
    #[test]
    fn decisions_make_sense_whatever_the_link_reports() {
        let ladder = ladder(ACCURACY_BYTES);
        let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        let id = |sequence: u64| FrameId { epoch: Epoch(1), sequence: Sequence(sequence) };
        for seed in 0..200 {
            for mut policy in policies() {
                let mut random = Random::seeded(seed);
                let accuracy_floor =
                    (random.within(0..=1) == 1).then(|| random.within(0..=100) as f64 / 100.0);
                let latency_bound = Duration::from_millis(random.within(1..=2_000));
                let (mut now_ms, mut sent) = (0, 0);
                for _ in 0..100 {
                    now_ms += random.within(0..=300);
                    let now = at(now_ms);
                    match random.within(0..=9) {
                        0 => policy.handle_reset(now, id(random.within(0..=40))),
                        1 => policy.handle_left(now, id(random.within(0..=40))),
                        2..=5 => {
                            let first = at(now_ms.saturating_sub(random.within(0..=5_000)));
                            let last = first + Duration::from_millis(random.within(0..=5_000));
                            let (frame, bytes) =
                                (id(random.within(0..=40)), random.within(0..=1 << 30) as u32);
                            let complete = random.within(0..=1) == 1;
                            policy.handle_arrival(now, &Arrival { frame, bytes, first, last, complete });
                        }
                        _ => {
                            let offer = Offer {
                                now,
                                captured: now,
                                interval: Duration::from_millis(67),
                                ladder: &ladder,
                                latency_bound,
                                result_latency_bound: None,
                                accuracy_floor,
                                on_time_share: 0.98,
                                degrade: true,
                                cap: None,
                                unsent_bytes: 0,
                                window: None,
                                coding: None,
                                prefers_finer: false,
                            };
                            match policy.decide(&offer) {
                                Decision::Wait { until } => {
                                    assert!(until > now, "seed {seed}: {}", policy.name())
                                }
                                Decision::Send(choice) => {
                                    assert!(choice.rung < ladder.len(), "seed {seed}: {}", policy.name());
                                    let (lowest, reaches) = offer.floor_rung();
                                    assert!(
                                        choice.rung >= lowest && reaches || choice.infeasible,
                                        "seed {seed}"
                                    );
                                    let bytes = ladder.rungs()[choice.rung].bytes.mean as u32;
                                    let due = now + latency_bound;
                                    policy.handle_sent(&SentFrame {
                                        frame: id(sent),
                                        rung: choice.rung,
                                        expected_bytes: bytes,
                                        bytes,
                                        captured: now,
                                        sent: now,
                                        due,
                                        window: None,
                                        first_packet_bytes: None,
                                        of_source: false,
                                        infeasible: choice.infeasible,
                                    });
                                    sent += 1;
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
