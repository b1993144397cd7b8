//! Checks whether the codecs of this build work on this host.

use mez_node::probe::codec::try_codec;

use super::finding::{Check, Finding};

/// The codecs to try: video, and stills.
const RUNGS: [(&str, &str); 2] = [("openh264", "h264/q28"), ("JPEG", "jpeg/q80/420")];

pub(super) fn check() -> Vec<Finding> {
    let tried = RUNGS.map(|(codec, rung)| match try_codec(rung) {
        Ok(tried) => Finding::ok(
            Check::Codec,
            format!(
                "{codec} encodes a picture of 640×480 within {:.1} ms, and decodes it within {:.1} ms",
                tried.encoding.as_secs_f64() * 1e3,
                tried.decoding.as_secs_f64() * 1e3
            ),
        ),
        Err(error) => Finding::fault(
            Check::Codec,
            format!("{codec} does not work: {error}"),
            "this build does not fit this processor, or it is damaged: install the wheel again, or build it here with `make wheel`",
        ),
    });
    tried.into()
}
