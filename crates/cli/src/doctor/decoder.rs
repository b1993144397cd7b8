//! Reports the decoders of H.264 on this host, which one is used, and why others are not. Also the decoders of H.265 and AV1.

use std::thread;

use mez_node::decoders::{DecoderChoice, VideoTimes};
use mez_node::probe::decoder::{DecoderTried, VideoTried, try_decoders, try_video_decoders};

use super::finding::{Check, Finding};
use super::subject::{Side, Subject};

pub(super) fn check(subject: &Subject) -> Vec<Finding> {
    let brokers = [(Side::Edge, "mez edge"), (Side::Camera, "mez camera")];
    let brokers = brokers.into_iter().filter(|(side, _)| subject.is(*side));
    let choices: Vec<(&str, DecoderChoice)> = brokers
        .map(|(side, name)| (name, subject.settings.value(side, "decoder").unwrap_or_default()))
        .collect();
    if choices.is_empty() {
        return Vec::new();
    }
    let (tried, trials) = thread::scope(|scope| {
        let trials = scope.spawn(|| try_once_each(&choices));
        (try_decoders(), trials.join().unwrap_or_default())
    });
    let mut findings: Vec<Finding> =
        choices.iter().map(|(name, choice)| used(name, *choice, &tried)).collect();
    findings.push(Finding::ok(Check::Decoder, format!("through ffmpeg: {}", all(&tried))));
    for (broker, choice) in &choices {
        let of_broker = trials.iter().filter(|(of, _)| of == choice).flat_map(|(_, tried)| tried);
        findings
            .extend(of_broker.map(|(encoding, tried)| other_video(broker, encoding.name(), tried.as_ref())));
    }
    findings
}

/// Tries H.265 and AV1, once per choice: the brokers of a host mostly have the same choice, and a trial takes seconds on a busy host.
fn try_once_each(choices: &[(&str, DecoderChoice)]) -> Vec<(DecoderChoice, VideoTried)> {
    let mut trials: Vec<(DecoderChoice, VideoTried)> = Vec::new();
    for (_, choice) in choices {
        if trials.iter().all(|(of, _)| of != choice) {
            trials.push((*choice, try_video_decoders(*choice)));
        }
    }
    trials
}

/// The decoder of H.265 or AV1 in a broker. Only sources of these encodings need it.
fn other_video(broker: &str, encoding: &str, tried: Result<&VideoTimes, &String>) -> Finding {
    let found = match tried {
        Ok(VideoTimes { kind, start, picture, .. }) => format!(
            "{broker} decodes {encoding} with {kind}: {:.1} ms for a picture of 1280×720, and {:.0} ms to start",
            picture.as_secs_f64() * 1e3,
            start.as_secs_f64() * 1e3,
        ),
        Err(reason) if broker == "mez edge" => {
            format!(
                "{broker} cannot decode {encoding}, so it makes no stills from {encoding} video ({reason})"
            )
        }
        Err(reason) => format!("{broker} cannot decode {encoding}, so sources of it become JPEG ({reason})"),
    };
    Finding::ok(Check::Decoder, found)
}

/// The decoder of H.264 in a broker.
fn used(broker: &str, choice: DecoderChoice, tried: &[DecoderTried]) -> Finding {
    if let Some(used) = tried.iter().find(|tried| tried.is_for(choice)) {
        return Finding::ok(
            Check::Decoder,
            format!("{broker} decodes H.264 with {} (decoder = {choice})", used.kind),
        );
    }
    match choice {
        DecoderChoice::Software | DecoderChoice::Auto => Finding::ok(
            Check::Decoder,
            format!("{broker} decodes H.264 in software, in its own process (decoder = {choice})"),
        ),
        DecoderChoice::Through(kind) => Finding::warning(
            Check::Decoder,
            format!("{broker} decodes H.264 in software, because {kind} does not work"),
            "fix the reason that the line \"through ffmpeg\" gives, or set decoder = \"auto\" (or --decoder auto)",
        ),
    }
}

/// All decoders, with their times or errors.
fn all(tried: &[DecoderTried]) -> String {
    let one = |tried: &DecoderTried| match &tried.works {
        Ok(times) => format!(
            "{} takes {:.1} ms for a picture of 1280×720, and {:.0} ms to start (software: {:.1} ms)",
            tried.kind,
            times.picture.as_secs_f64() * 1e3,
            times.start.as_secs_f64() * 1e3,
            times.library.as_secs_f64() * 1e3,
        ),
        Err(reason) => format!("{} does not work ({reason})", tried.kind),
    };
    tried.iter().map(one).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mez_node::decoders::Kind;
    use mez_node::probe::decoder::DecoderTimes;

    use super::super::finding::Level;
    use super::*;

    fn works(kind: Kind, picture: u64) -> DecoderTried {
        let times = |picture| DecoderTimes {
            start: Duration::from_millis(200),
            picture: Duration::from_millis(picture),
            library: Duration::from_millis(4),
        };
        DecoderTried { kind, works: Ok(times(picture)) }
    }

    #[test]
    fn it_says_what_is_used_and_what_is_not() {
        let broken = DecoderTried { kind: Kind::V4l2m2m, works: Err("no device".into()) };
        let tried = [broken, works(Kind::Vaapi, 5), works(Kind::Cuda, 3), works(Kind::Ffmpeg, 2)];
        let of = |choice: &str| used("mez edge", choice.parse().unwrap(), &tried);
        assert!(of("software").found.contains("in software"));
        // The first decoder that is faster, and never a software one.
        assert!(of("auto").found.contains("with cuda"), "{:?}", of("auto"));
        assert!(of("vaapi").found.contains("with vaapi"));
        let broken = of("v4l2m2m");
        assert_eq!(broken.level, Level::Warning);
        let all = all(&tried);
        assert!(
            all.contains("v4l2m2m does not work (no device)") && all.contains("ffmpeg takes 2.0 ms"),
            "{all}"
        );
    }
}
