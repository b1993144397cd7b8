//! An inquiry tells how a camera would be judged, and changes nothing.

use super::*;
use crate::wire::{Inquiry, Standing};

fn ask(rig: &Rig, link: u64, camera: &str) -> Standing {
    let inquiry = Inquiry { camera: camera.parse().unwrap(), software: "a test".into() };
    rig.broker.standing(LinkId(link), &inquiry, WALL).expect("the connection is there")
}

fn code(standing: &Standing) -> Option<RefuseCode> {
    standing.refusal.as_ref().map(|(code, _)| *code)
}

#[test]
fn a_host_learns_how_its_camera_would_stand_and_nothing_becomes_of_it() {
    let mut rig = Rig::with(EdgeConfig { cameras_max: 1, ..EdgeConfig::default() });
    rig.connect(1, "dock");
    let standing = ask(&rig, 1, "dock/cam1");
    assert_eq!((standing.wall, standing.version, standing.is_connected), (WALL, VERSION, false));
    assert_eq!(code(&standing), None);
    assert_eq!(code(&ask(&rig, 1, "yard/cam1")), Some(RefuseCode::NotPermitted));
    assert!(rig.take().is_empty() && rig.broker.cameras(rig.now).is_empty());

    rig.broker.handle_message(rig.now, LinkId(1), Message::Hello(hello("dock/cam1", 3, 1, 0)));
    rig.take();
    rig.connect(2, "dock");
    let standing = ask(&rig, 2, "dock/cam1");
    assert!(standing.is_connected && standing.refusal.is_none(), "{standing:?}");
    rig.connect(3, "another");
    let standing = ask(&rig, 3, "dock/cam1");
    assert!(!standing.is_connected);
    assert_eq!(code(&standing), Some(RefuseCode::NameHeld));
    // The edge has room for one camera, and it is taken.
    assert_eq!(code(&ask(&rig, 2, "dock/cam2")), Some(RefuseCode::Full));
    let nobody = Inquiry { camera: "dock/cam1".parse().unwrap(), software: String::new() };
    assert_eq!(rig.broker.standing(LinkId(9), &nobody, WALL), None);
    assert!(rig.take().is_empty());
}
