//! Groups and members for tests.

use std::time::Duration;

use mez_core::group::session::PlaceTold;
use mez_core::name::CameraName;
use mez_core::subscription::Deliver;
use mez_node::camera::CameraHandle;
use mez_node::client::{
    EdgeClient, Event, GroupSummary, Membership, ReceivedFrame, SubscribeOptions, Subscription,
};

use crate::api_support::{frame, image, within};

pub fn dock() -> CameraName {
    "dock/cam1".parse().unwrap()
}

pub fn detect() -> Membership {
    Membership::new("detect".parse().unwrap())
}

pub fn every(group: Membership) -> SubscribeOptions {
    SubscribeOptions {
        deliver: Some(Deliver::Every),
        group: Some(group),
        ..SubscribeOptions::new("dock/*".parse().unwrap())
    }
}

/// A membership that settles by hand, with at most `at_once` open records.
pub fn by_hand(at_once: u32) -> Membership {
    Membership { at_once, settles_itself: false, ..detect() }
}

/// The group's place, as reported to a joining member.
pub async fn joined(subscription: &mut Subscription) -> (PlaceTold, bool) {
    within(async {
        loop {
            match subscription.next().await.expect("the subscription has not ended") {
                Event::Joined { place, survives } => return (place, survives),
                Event::Failed { reason } => panic!("{reason}"),
                _ => {}
            }
        }
    })
    .await
}

/// Publishes small images until a member gets one. Returns its record.
pub async fn first(camera: &CameraHandle, member: &mut Subscription) -> Box<ReceivedFrame> {
    for value in 0..600 {
        camera.publish(image(value, 100)).unwrap();
        if let Ok(record) = tokio::time::timeout(Duration::from_millis(100), frame(member)).await {
            return record;
        }
    }
    panic!("nothing was given");
}

pub fn done(member: &Subscription, record: &ReceivedFrame) -> bool {
    member.control().settle(&record.camera, record.meta.id, None)
}

pub fn failed(member: &Subscription, record: &ReceivedFrame, why: &str) -> bool {
    member.control().settle(&record.camera, record.meta.id, Some(why.into()))
}

/// The group, once `stands` accepts it.
pub async fn until(client: &EdgeClient, stands: impl Fn(&GroupSummary) -> bool) -> GroupSummary {
    within(async {
        loop {
            if let Some(group) = client.groups().await.unwrap().into_iter().find(|group| stands(group)) {
                return group;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}
