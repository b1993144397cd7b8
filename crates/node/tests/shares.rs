//! A declared channel over real sockets: cameras get their shares, and clients can query them.

mod api_support;

use std::time::Duration;

use api_support::{Site, within};
use mez_core::broker::Published;
use mez_core::broker::edge::EdgeConfig;
use mez_core::controller::share::Channels;
use mez_core::frame::Encoding;
use mez_node::client::SubscribeOptions;

/// Two cameras whose frames are so large that sending them takes time even on this host, and
/// a third one without a channel. The first two get shares of the channel's measured rate.
#[tokio::test(flavor = "multi_thread")]
async fn cameras_on_a_declared_channel_are_told_their_shares() {
    let site = Site::new();
    let channels = Channels::new(vec!["hall=dock/*".parse().unwrap()]).unwrap();
    let edge = site.edge_with(EdgeConfig { channels, ..EdgeConfig::default() });
    let mut cameras = Vec::new();
    for name in ["dock/cam1", "dock/cam2", "yard/cam1"] {
        cameras.push(site.camera(name, &edge).await);
    }
    let (_server, unix, _) = site.serve_edge(&edge).await;
    let client = site.client(&unix).await;
    let _subscription = client.subscribe(SubscribeOptions::new("**".parse().unwrap())).await.unwrap();
    let picture = vec![7; 1600 * 1200 * 3];
    let told = within(async {
        loop {
            for camera in &cameras {
                let (payload, encoding) = (picture.clone().into(), Encoding::Bgr8);
                let published = Published { payload, encoding, width: 1600, height: 1200, captured: None };
                camera.publish(published).unwrap();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            let told = client.cameras(None).await.unwrap();
            let has_share = |place: usize| {
                told[place].channel.as_ref().is_some_and(|channel| channel.frame_bytes.is_some())
            };
            if has_share(0) && has_share(1) {
                return told;
            }
        }
    })
    .await;
    let hall = told[0].channel.as_ref().unwrap();
    assert_eq!((hall.name.as_str(), told[1].channel.as_ref().unwrap().name.as_str()), ("hall", "hall"));
    assert!(hall.bits_per_second.is_some_and(|rate| rate > 0.0), "{hall:?}");
    assert_eq!(told[2].channel, None);
}
