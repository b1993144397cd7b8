//! Finds which of many patterns select a name, without trying each.

use std::collections::{BTreeMap, BTreeSet};

use crate::name::{CameraName, CameraPattern, SEGMENTS_MAX};

/// Values by pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternTree<T>(Node<T>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node<T> {
    value: Option<T>,
    /// The node after each segment that is spelled out.
    named: BTreeMap<Box<str>, Self>,
    /// The node after `*`.
    one: Option<Box<Self>>,
    /// The node after `**`.
    many: Option<Box<Self>>,
}

impl<T> Default for Node<T> {
    fn default() -> Self {
        Self { value: None, named: BTreeMap::new(), one: None, many: None }
    }
}

impl<T> Default for PatternTree<T> {
    fn default() -> Self {
        Self(Node::default())
    }
}

impl<T: Default> PatternTree<T> {
    /// The value of a pattern, created if there is none.
    pub fn entry(&mut self, pattern: &CameraPattern) -> &mut T {
        let mut node = &mut self.0;
        let mut before = "";
        for segment in pattern.as_str().split('/') {
            // `**/**` selects what `**` selects.
            if (before, segment) == ("**", "**") {
                continue;
            }
            before = segment;
            node = match segment {
                "*" => node.one.get_or_insert_default(),
                "**" => node.many.get_or_insert_default(),
                _ => node.named.entry(segment.into()).or_default(),
            };
        }
        node.value.get_or_insert_default()
    }
}

impl<T> PatternTree<T> {
    /// Whether `found` is true for the value of some pattern that selects `name`.
    pub fn any(&self, name: &CameraName, mut found: impl FnMut(&T) -> bool) -> bool {
        let mut segments = [""; SEGMENTS_MAX];
        let mut count = 0;
        for (place, segment) in segments.iter_mut().zip(name.as_str().split('/')) {
            *place = segment;
            count += 1;
        }
        self.0.any(&segments[..count], &mut found)
    }
}

impl<T> Node<T> {
    fn any(&self, segments: &[&str], found: &mut impl FnMut(&T) -> bool) -> bool {
        let here = match segments.split_first() {
            Some((&first, rest)) => {
                self.named.get(first).is_some_and(|next| next.any(rest, found))
                    || self.one.as_deref().is_some_and(|next| next.any(rest, found))
            }
            None => self.value.as_ref().is_some_and(&mut *found),
        };
        here || self
            .many
            .as_deref()
            .is_some_and(|next| (0..=segments.len()).any(|skip| next.any(&segments[skip..], found)))
    }
}

/// A set of patterns. It selects a camera if one of them does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatternSet {
    patterns: BTreeSet<CameraPattern>,
    tree: PatternTree<()>,
}

impl PatternSet {
    /// Adds a pattern.
    pub fn insert(&mut self, pattern: CameraPattern) {
        self.tree.entry(&pattern);
        self.patterns.insert(pattern);
    }

    /// Whether one of the patterns selects `camera`.
    pub fn matches(&self, camera: &CameraName) -> bool {
        self.tree.any(camera, |()| true)
    }

    /// The patterns, in the order of their texts.
    pub fn patterns(&self) -> impl Iterator<Item = &CameraPattern> {
        self.patterns.iter()
    }

    /// Whether there is no pattern.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }
}
