//! Both brokers on one screen: a camera publishes, an application subscribes, frames are delivered.
//!
//! `mez-core` does no input or output, so this program is all the world that it needs. Whoever drives a broker does three things: tells it
//! what happened (`handle_*`), carries out what it wants done (`poll_output`), and comes back when its timer is due (`poll_timeout`).
//! `mez-node` does that with sockets, `mez-testbed` with models; here a message is a function call, and the clock is a number.
//!
//! ```console
//! $ cargo run -p mez-core --example one_screen
//! ```

#![expect(clippy::disallowed_macros, reason = "core has no terminal, and this program has")]

use std::error::Error;
use std::time::Duration;

use mez_core::broker::camera::{CameraBroker, CameraConfig, CameraOutput};
use mez_core::broker::edge::{EdgeBroker, EdgeConfig, EdgeOutput, Peer, SubscriptionId};
use mez_core::broker::{Intake, IntakeConfig, LinkId, Published};
use mez_core::controller::named::PolicyName;
use mez_core::frame::{Encoding, Epoch};
use mez_core::log::{LogConfig, log};
use mez_core::subscription::{Next, Span, Subscription, SubscriptionSpec};
use mez_core::units::{ClockAnchor, Instant, Timestamp};

/// The only connection: nothing is ever lost on it.
const LINK: LinkId = LinkId(1);

fn main() -> Result<(), Box<dyn Error>> {
    let mut now = Instant::from_nanos(1_000_000_000);
    let anchor = ClockAnchor { wall: Timestamp::from_nanos(1 << 60), monotonic: now };

    // Where the camera is: frames enter a log through the intake, and the broker reads them there.
    let (writer, reader) = log(LogConfig::default());
    let mut intake = Intake::new(writer, IntakeConfig::new(Epoch(1), anchor));
    let (camera, software, policy) = ("dock/cam1".parse()?, "one_screen".into(), PolicyName::default());
    let config = CameraConfig { camera, epoch: Epoch(1), anchor, software, policy, edges: 1 };
    let mut camera = CameraBroker::new(config, &reader, now);

    // Where the application is: it reads the logs that the edge broker attaches to its subscription.
    let mut edge = EdgeBroker::new(EdgeConfig::default());
    let mut application = Subscription::new(Span::LIVE);
    edge.handle_subscribe(anchor, SubscriptionId(1), SubscriptionSpec::live("dock/*".parse()?));

    for tick in 0..12 {
        // Timers first: the camera's first one is due at once, and makes it dial.
        if camera.poll_timeout() <= now {
            camera.handle_timeout(now);
        }
        if edge.poll_timeout().is_some_and(|due| due <= now) {
            edge.handle_timeout(now);
        }
        carry_out(now, &mut camera, &mut edge, &mut application);

        // A frame every 100 ms. Publishing is an append to the log; the broker is told that the log has grown.
        let payload = format!("frame of tick {tick}").into_bytes().into();
        let frame = Published { payload, encoding: Encoding::Jpeg, width: 640, height: 480, captured: None };
        let id = intake.publish(now, frame)?;
        println!("{tick:>2}  published {id}");
        camera.handle_published(now);
        carry_out(now, &mut camera, &mut edge, &mut application);

        // The application is slower than the camera: it takes a frame every 300 ms. It gets the newest, and is told of the others.
        if tick % 3 == 2
            && let Next::Frame(delivery) = application.next(anchor.wall_at(now))
        {
            let (frame, skipped) = (&delivery.record.frame, delivery.skipped.total());
            println!("    delivered {}: {:?}, {skipped} skipped before", frame.meta.id, frame.payload);
        }
        now += Duration::from_millis(100);
    }
    Ok(())
}

/// Carries out what the brokers want done, until neither wants anything.
fn carry_out(now: Instant, camera: &mut CameraBroker, edge: &mut EdgeBroker, application: &mut Subscription) {
    loop {
        if let Some(output) = camera.poll_output() {
            match output {
                CameraOutput::Dial { edge: index } => {
                    // A real edge reads in the camera's certificate which cameras it may be.
                    let may_be = vec!["dock/*".parse().expect("a valid pattern")];
                    edge.handle_connected(now, LINK, Peer { identity: "dock".into(), cameras: may_be });
                    camera.handle_dialled(now, LINK, index);
                }
                CameraOutput::Send { link, message } => edge.handle_message(now, link, message),
                CameraOutput::SendFrame { link, header, payload } => {
                    let id = header.meta.id;
                    // The header goes ahead, so that the edge can refuse a frame before its bytes come.
                    if edge.handle_frame_header(now, link, *header).is_ok() {
                        edge.handle_frame_complete(now, link, id, payload);
                    }
                    camera.handle_sent(now, link, id);
                }
                // Work for a codec, questions to a disk, news for people: none of it happens here.
                _ => {}
            }
        } else if let Some(output) = edge.poll_output() {
            match output {
                EdgeOutput::Send { link, message } => camera.handle_message(now, link, message),
                EdgeOutput::Attach { camera, log, .. } => application.attach(camera, log),
                _ => {}
            }
        } else {
            return;
        }
    }
}
