//! Asking an edge's link whether it would accept a camera: the answers, the obstacles, and that the edge stays unchanged.

mod api_support;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use api_support::{Site, within};
use mez_node::identity::Credentials;
use mez_node::identity::name::Role;
use mez_node::identity::tls::{grpc_server_config, link_server_config};
use mez_node::ports::EdgeAddress;
use mez_node::probe::{self, Obstacle};
use mez_node::revocation::LiveRevocations;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

fn place(address: SocketAddr) -> EdgeAddress {
    EdgeAddress { host: address.ip().to_string(), port: address.port() }
}

/// A port whose TLS names another protocol, like an edge of another version.
async fn of_another_version(mut config: rustls::ServerConfig) -> SocketAddr {
    config.alpn_protocols = vec![b"mez/2".to_vec()];
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        while let Ok((stream, _)) = listener.accept().await {
            let _ = acceptor.accept(stream).await;
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn both_transports_answer_and_no_camera_comes_of_it() {
    let site = Site::new();
    let edge = site.edge();
    let camera = "dock/cam1".parse().unwrap();
    let credentials = site.credentials(Role::Camera, "dock/cam1");
    let ask = |credentials: Credentials, camera| {
        let place = place(edge.link_address());
        async move { within(probe::link(&place, Some((&credentials, &camera)))).await.unwrap() }
    };
    let report = ask(credentials.clone(), camera).await;
    for answer in [report.tcp, report.quic.clone()] {
        let answer = answer.unwrap().expect("it was asked");
        assert_eq!((answer.standing.refusal, answer.standing.is_connected), (None, false));
        assert!(answer.clock.at_least().as_secs() == 0, "{:?}", answer.clock);
    }
    let sizes = report.quic.unwrap().unwrap().datagrams.expect("QUIC knows them");
    assert!(sizes.is_usual() && sizes.path >= 1_452, "{sizes:?}");
    assert!(edge.cameras().await.unwrap().is_empty());

    let report = ask(credentials, "yard/cam1".parse().unwrap()).await;
    let (code, text) = report.tcp.unwrap().unwrap().standing.refusal.expect("it may not be this camera");
    assert!(text.contains("may not publish camera yard/cam1"), "{code:?} {text}");
    assert!(edge.cameras().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_camera_that_runs_is_not_disturbed() {
    let site = Site::new();
    let edge = site.edge();
    let camera = site.camera("dock/cam1", &edge).await;
    let credentials = site.credentials(Role::Camera, "dock/cam1");
    let name = "dock/cam1".parse().unwrap();
    let report = within(probe::link(&place(edge.link_address()), Some((&credentials, &name)))).await.unwrap();
    let standing = report.quic.unwrap().unwrap().standing;
    assert!(standing.is_connected && standing.refusal.is_none(), "{standing:?}");
    let known = edge.cameras().await.unwrap();
    assert!(known.len() == 1 && known[0].connected, "{known:?}");
    assert!(camera.edge().borrow().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edge_of_another_version_and_one_of_another_site_are_told_apart() {
    let (site, other) = (Site::new(), Site::new());
    let serving = site.credentials(Role::Edge, "edge");
    let revoked = LiveRevocations::in_memory(&serving);
    let (camera, app) = (site.credentials(Role::Camera, "dock"), site.credentials(Role::App, "counter"));
    let name = "dock/cam1".parse().unwrap();

    let link = of_another_version(link_server_config(&serving, &revoked).unwrap()).await;
    let report = within(probe::link(&place(link), Some((&camera, &name)))).await.unwrap();
    assert_eq!(report.tcp.unwrap_err().obstacle, Obstacle::Version);
    assert_eq!(report.quic.unwrap_err().obstacle, Obstacle::Silent);
    let grpc = of_another_version(grpc_server_config(&serving, &[Role::App], &revoked).unwrap()).await;
    let failure = within(probe::grpc("127.0.0.1", grpc.port(), Some(&app))).await.unwrap_err();
    assert_eq!(failure.obstacle, Obstacle::Version, "{failure}");

    let edge = site.edge();
    let stranger = other.credentials(Role::Camera, "dock");
    let report = within(probe::link(&place(edge.link_address()), Some((&stranger, &name)))).await.unwrap();
    assert_eq!(report.tcp.unwrap_err().obstacle, Obstacle::Site);
    assert_eq!(report.quic.unwrap_err().obstacle, Obstacle::Site);
}
