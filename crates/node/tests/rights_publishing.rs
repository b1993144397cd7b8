//! What users of a camera's host may do at the camera broker's socket: whoever may publish may take answers. Other users are real ones if root runs it.
//! `rights_matrix.rs` has the same for an edge.

mod api_support;

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use api_support::{Site, within};
use mez_node::api::pb;
use mez_node::api::pb::camera_broker_client::CameraBrokerClient;
use mez_node::client::{Address, ClientError, PublisherClient, PublisherOptions};
use tonic::Code;
use tonic::transport::Endpoint;

/// A user ID that stands for another user. Hosts of tests have no such user, but the kernel accepts it.
const UID: u32 = 61_000;
/// Set in the child process of this test: the socket to use.
const SOCKET: &str = "PUBLISHES_AT";
/// Begins the line of the child process that contains the answer.
const CELL: &str = "heard: ";

/// Not a test itself: a program of another user of this host.
#[tokio::test(flavor = "multi_thread")]
async fn child_process_that_publishes() {
    let Ok(path) = std::env::var(SOCKET) else { return };
    println!("\n{CELL}{}", asked(Path::new(&path)).await);
}

/// What a program of this user may do: publish, take answers, read frames.
async fn asked(socket: &Path) -> String {
    let address = Address::Unix(socket.to_owned());
    let options = PublisherOptions { patience: Duration::from_secs(1), waiting_frames_max: 1 };
    let publisher = match PublisherClient::connect(address, None, None, options).await {
        Ok(publisher) => publisher,
        Err(error) => return error.to_string(),
    };
    let answers = match within(publisher.begin_answers(Duration::from_secs(1))).await {
        Ok(()) => "yes",
        Err(ClientError::Refused(error)) if error.code == Code::PermissionDenied => "no",
        Err(error) => panic!("{error}"),
    };
    let channel = Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
    let mut foreign = CameraBrokerClient::new(channel.connect().await.unwrap());
    let request = pb::SubscribeRequest { pattern: "**".into(), ..Default::default() };
    let reads = match within(foreign.subscribe(request)).await {
        Ok(_) => "yes",
        Err(status) if status.code() == Code::PermissionDenied => "no",
        Err(status) => panic!("{status}"),
    };
    format!("publishes yes, takes answers {answers}, reads {reads}")
}

/// The same as another user of this host. Only root can do this.
fn asked_as_another(socket: &Path) -> String {
    // That user may have no access to this program's path.
    let mut child = Command::new("/proc/self/exe");
    child.args(["--exact", "child_process_that_publishes", "--nocapture", "--test-threads=1"]);
    child.current_dir("/").env_clear().env(SOCKET, socket).uid(UID).gid(UID);
    let output = tokio::task::block_in_place(|| child.output()).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let told = text.lines().find_map(|line| line.strip_prefix(CELL).map(str::to_owned));
    told.unwrap_or_else(|| panic!("{text}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_publish_at_a_camera_broker_may_take_answers_and_nobody_else() {
    let site = Site::new();
    let edge = site.edge();
    let camera = site.camera("dock/cam1", &edge).await;
    let (_server, address) = site.serve_camera(&camera);
    let socket = address.as_unix().unwrap();
    assert_eq!(asked(socket).await, "publishes yes, takes answers yes, reads yes");
    if !rustix::process::geteuid().is_root() {
        return println!("only root can be another user of this host: the rest is left out");
    }
    set_permissions(site.folder.path(), Permissions::from_mode(0o755)).unwrap();
    let told = asked_as_another(socket);
    assert!(told.contains("this user may not use the socket"), "{told}");
    // The operator lets everyone in.
    set_permissions(socket, Permissions::from_mode(0o666)).unwrap();
    assert_eq!(asked_as_another(socket), "publishes yes, takes answers yes, reads no");
}
