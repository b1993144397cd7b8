//! The edges that a program may use, in order of preference, and which of them is in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use super::address::Address;
use super::dial::Dialler;
use super::error::ClientError;
use super::streams::EventStream;
use crate::api::pb;
use crate::api::socket::Which;
use crate::identity::Credentials;

/// How long each edge may take to answer before the next one is asked too.
const HEAD_START: Duration = Duration::from_millis(300);

/// The edges of a site. Cheap to clone.
#[derive(Clone)]
pub(super) struct Edges(Arc<Inner>);

struct Inner {
    /// The edges in order of preference. At least one.
    edges: Vec<Dialler>,
    /// The index of the edge that answered last.
    current: AtomicUsize,
}

impl Edges {
    pub(super) fn new(
        addresses: Vec<Address>,
        credentials: Option<&Credentials>,
    ) -> Result<Self, ClientError> {
        assert!(!addresses.is_empty(), "a client has an edge");
        let edges = addresses.into_iter().map(|address| Dialler::new(address, Which::Edge, credentials));
        Ok(Self(Arc::new(Inner { edges: edges.collect::<Result<_, _>>()?, current: AtomicUsize::new(0) })))
    }

    /// The edge in use.
    pub(super) fn current(&self) -> &Dialler {
        &self.0.edges[self.place()]
    }

    /// The index of the edge in use.
    pub(super) fn place(&self) -> usize {
        self.0.current.load(Ordering::Relaxed)
    }

    /// Whether any edge runs on another host, or may do so.
    pub(super) fn any_remote(&self) -> bool {
        self.0.edges.iter().any(Dialler::is_remote)
    }

    pub(super) fn are_several(&self) -> bool {
        self.0.edges.len() > 1
    }

    /// Agrees on a version with the first edge that answers. This edge is in use from then on.
    pub(super) async fn connect(&self) -> Result<pb::ConnectResponse, ClientError> {
        self.first(0, async |edge: Dialler| edge.connect().await).await
    }

    /// Subscribes at the first edge that answers. This edge is in use from then on. `preferred` is asked before all others.
    pub(super) async fn subscribe(
        &self,
        preferred: usize,
        request: &pb::SubscribeRequest,
    ) -> Result<(Dialler, EventStream, pb::Started), ClientError> {
        self.first(preferred, |edge| {
            let request = request.clone();
            async move {
                let (stream, started) = edge.subscribe(request).await?;
                Ok((edge, stream, started))
            }
        })
        .await
    }

    /// The index and address of another edge to which a matching camera is connected, if none is connected to `here`.
    pub(super) async fn elsewhere(&self, here: &Dialler, pattern: &str) -> Option<(usize, &Address)> {
        let has_one = async |edge: &Dialler| {
            let known = edge.observable(pattern.into()).await.ok()??;
            Some(known.cameras.iter().any(|camera| camera.connected))
        };
        if has_one(here).await? {
            return None;
        }
        for (place, edge) in self.0.edges.iter().enumerate() {
            if edge.address() != here.address() && has_one(edge).await == Some(true) {
                return Some((place, edge.address()));
            }
        }
        None
    }

    /// Asks the edges one after the other, each [`HEAD_START`] later, until one has
    /// answered. Requests that are still open at the others are then cancelled.
    async fn first<T, F>(&self, preferred: usize, ask: impl Fn(Dialler) -> F) -> Result<T, ClientError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ClientError>> + Send + 'static,
    {
        let others = (0..self.0.edges.len()).filter(|place| *place != preferred);
        let mut asked = JoinSet::new();
        for (turn, place) in std::iter::once(preferred).chain(others).enumerate() {
            let answer = ask(self.0.edges[place].clone());
            asked.spawn(async move {
                tokio::time::sleep(HEAD_START * turn as u32).await;
                (turn, place, answer.await)
            });
        }
        let mut failures = Vec::new();
        while let Some(answered) = asked.join_next().await {
            match answered.expect("nothing panics on the way to a broker") {
                (_, place, Ok(answer)) => {
                    self.0.current.store(place, Ordering::Relaxed);
                    return Ok(answer);
                }
                (turn, _, Err(error)) => failures.push((error.is_passing(), turn, error)),
            }
        }
        // A permanent failure is the most helpful. Otherwise the failure of the preferred edge is returned.
        failures.sort_by_key(|(passing, turn, _)| (*passing, *turn));
        Err(failures.swap_remove(0).2)
    }
}
