//! Writes metrics in Prometheus' text format, version 0.0.4.

use std::fmt::{Display, Write};

/// The media type of the format.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It only grows, except for restarts. Its name ends in `_total`.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A text in progress.
#[derive(Default)]
pub(super) struct Text(String);

impl Text {
    /// Writes a metric with its samples, each with its labels. A metric without samples is left out.
    pub(super) fn metric<'a, V: Display>(
        &mut self,
        (name, kind, help): (&str, Kind, &str),
        samples: impl IntoIterator<Item = (Labelled<'a>, V)>,
    ) {
        debug_assert_eq!(kind == Kind::Counter, name.ends_with("_total"), "{name}");
        let kind = if kind == Kind::Counter { "counter" } else { "gauge" };
        let mut begun = false;
        for (labels, value) in samples {
            if !std::mem::replace(&mut begun, true) {
                // Writing to a `String` cannot fail.
                let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
            }
            self.0.push_str(name);
            self.labels(labels.0.into_iter().flatten());
            let _ = writeln!(self.0, " {value}");
        }
    }

    /// Writes a metric with one sample and no labels.
    pub(super) fn single(&mut self, metric: (&str, Kind, &str), value: impl Display) {
        self.metric(metric, [(Labelled::NONE, value)]);
    }

    /// Writes histograms, each with its labels, counts and sum. Each count is of values above the previous bound
    /// and at most its own; the last count is of values above all `bounds`. Without samples nothing is written.
    pub(super) fn histograms<'a, const N: usize>(
        &mut self,
        (name, help): (&str, &str),
        bounds: &[f64],
        samples: impl IntoIterator<Item = (Labelled<'a>, [u64; N], f64)>,
    ) {
        debug_assert_eq!(bounds.len() + 1, N, "{name}");
        let bounds: Vec<String> = bounds.iter().map(ToString::to_string).chain(["+Inf".into()]).collect();
        let mut begun = false;
        for (labels, counts, sum) in samples {
            if !std::mem::replace(&mut begun, true) {
                // Writing to a `String` cannot fail.
                let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} histogram");
            }
            let mut within = 0;
            for (bound, count) in bounds.iter().zip(counts) {
                within += count;
                let _ = write!(self.0, "{name}_bucket");
                self.labels(labels.0.into_iter().flatten().chain([("le", bound.as_str())]));
                let _ = writeln!(self.0, " {within}");
            }
            let totals: [(&str, &dyn Display); 2] = [("sum", &sum), ("count", &within)];
            for (of, value) in totals {
                let _ = write!(self.0, "{name}_{of}");
                self.labels(labels.0.into_iter().flatten());
                let _ = writeln!(self.0, " {value}");
            }
        }
    }

    fn labels<'a>(&mut self, labels: impl Iterator<Item = (&'static str, &'a str)>) {
        let mut is_any = false;
        for (label, text) in labels {
            self.0.push(if is_any { ',' } else { '{' });
            is_any = true;
            self.0.push_str(label);
            self.0.push_str("=\"");
            escape(text, &mut self.0);
            self.0.push('"');
        }
        if is_any {
            self.0.push('}');
        }
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// The labels of a sample: at most two.
#[derive(Clone, Copy)]
pub(super) struct Labelled<'a>([Option<(&'static str, &'a str)>; 2]);

impl<'a> Labelled<'a> {
    pub(super) const NONE: Self = Self([None; 2]);

    pub(super) fn one(label: &'static str, value: &'a str) -> Self {
        Self([Some((label, value)), None])
    }

    pub(super) fn two(first: (&'static str, &'a str), second: (&'static str, &'a str)) -> Self {
        Self([Some(first), Some(second)])
    }
}

fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_written_with_labels_that_cannot_break_out() {
        let mut text = Text::default();
        text.single(("a", Kind::Gauge, "One."), 1.5);
        text.metric(("b_total", Kind::Counter, "None."), std::iter::empty::<(Labelled<'_>, u64)>());
        let labels = Labelled::two(("camera", "x\"} 1\n\\"), ("state", "ok"));
        text.metric(("c_total", Kind::Counter, "Some."), [(labels, 7)]);
        let expected = "# HELP a One.\n# TYPE a gauge\na 1.5\n# HELP c_total Some.\n# TYPE c_total counter\n\
                        c_total{camera=\"x\\\"} 1\\n\\\\\",state=\"ok\"} 7\n";
        assert_eq!(text.finish(), expected);
    }

    #[test]
    fn buckets_of_a_histogram_hold_those_below() {
        let mut text = Text::default();
        text.histograms(("a_seconds", "Ages."), &[0.5, 1.0], [(Labelled::NONE, [2, 0, 3], 7.25)]);
        text.histograms(("b_seconds", "None."), &[], std::iter::empty::<(Labelled<'_>, [u64; 1], f64)>());
        let of_cameras = [("a", [1], 1.0), ("b\"", [0], 0.0)];
        let of_cameras = of_cameras.map(|(name, counts, sum)| (Labelled::one("camera", name), counts, sum));
        text.histograms(("c_seconds", "By camera."), &[], of_cameras);
        let expected = "# HELP a_seconds Ages.\n# TYPE a_seconds histogram\n\
                        a_seconds_bucket{le=\"0.5\"} 2\na_seconds_bucket{le=\"1\"} 2\n\
                        a_seconds_bucket{le=\"+Inf\"} 5\na_seconds_sum 7.25\na_seconds_count 5\n\
                        # HELP c_seconds By camera.\n# TYPE c_seconds histogram\n\
                        c_seconds_bucket{camera=\"a\",le=\"+Inf\"} 1\nc_seconds_sum{camera=\"a\"} 1\n\
                        c_seconds_count{camera=\"a\"} 1\n\
                        c_seconds_bucket{camera=\"b\\\"\",le=\"+Inf\"} 0\nc_seconds_sum{camera=\"b\\\"\"} 0\n\
                        c_seconds_count{camera=\"b\\\"\"} 0\n";
        assert_eq!(text.finish(), expected);
    }
}
