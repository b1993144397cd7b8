//! Checks detections, and converts them to another size of the picture.

/// The most detections in a reply.
pub const DETECTIONS_MAX: usize = 4096;
/// The most bytes in the name of a class.
pub const CLASS_NAME_BYTES_MAX: usize = 128;
/// The most pixels in the raster of a mask.
pub const MASK_PIXELS_MAX: u64 = 1 << 26;

/// The objects that an application found in a picture. Coordinates are in pixels from the upper left corner. The first pixel extends from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Detections {
    size: (u32, u32),
    items: Vec<Detection>,
}

/// An object in a picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Detection {
    /// The bounding box: left, top, right, bottom. May extend beyond the picture.
    pub xyxy: [f32; 4],
    /// The detector's confidence, on the detector's own scale. `None` if unknown.
    pub score: Option<f32>,
    /// The detector's number for the class.
    pub class_id: Option<i32>,
    /// The detector's name for the class. Empty if unknown.
    pub class_name: String,
    /// The object's number in a tracker.
    pub tracker_id: Option<i64>,
    /// The pixels of the object.
    pub mask: Option<Mask>,
    /// Points of the object, such as wrists.
    pub key_points: Vec<KeyPoint>,
}

/// The pixels of an object, as a raster that is stretched over the whole picture. The raster may have any size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mask {
    /// The width of the raster.
    pub width: u32,
    /// The height of the raster.
    pub height: u32,
    /// Lengths of runs, column by column, alternately of pixels outside and inside of the object, beginning with outside.
    pub runs: Vec<u32>,
}

/// A point of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KeyPoint {
    /// Pixels from the left edge.
    pub x: f32,
    /// Pixels from the top edge.
    pub y: f32,
    /// The detector's confidence. `None` if unknown.
    pub score: Option<f32>,
}

/// Why detections are rejected.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DetectionsError {
    /// The picture has no size.
    #[error(
        "the detections refer to a picture of {width}x{height} pixels; give width and height of the image that the detector got"
    )]
    NoPicture {
        /// Its width.
        width: u32,
        /// Its height.
        height: u32,
    },
    /// There are more than [`DETECTIONS_MAX`].
    #[error(
        "there are {count} detections, more than the limit of {DETECTIONS_MAX}; send the detections with the highest scores"
    )]
    TooMany {
        /// Their number.
        count: usize,
    },
    /// A number is infinite or NaN.
    #[error("detection {place} has the {what} {value}; give finite numbers")]
    NotFinite {
        /// The index of the detection, from 0.
        place: usize,
        /// The name of the number.
        what: &'static str,
        /// The number.
        value: f32,
    },
    /// A box is inverted.
    #[error(
        "detection {place} has the box {xyxy:?}, which ends before it begins; give left, top, right and bottom"
    )]
    Inverted {
        /// The index of the detection, from 0.
        place: usize,
        /// Its box.
        xyxy: [f32; 4],
    },
    /// The name of a class is too long.
    #[error("detection {place} has a class name of {bytes} bytes; give at most {CLASS_NAME_BYTES_MAX}")]
    ClassName {
        /// The index of the detection, from 0.
        place: usize,
        /// The size of the name in bytes.
        bytes: usize,
    },
    /// The runs of a mask do not fill its raster.
    #[error(
        "detection {place} has a mask of {width}x{height} pixels whose runs have {pixels}; give runs that fill the \
         raster, of at most {MASK_PIXELS_MAX} pixels"
    )]
    Mask {
        /// The index of the detection, from 0.
        place: usize,
        /// Width of the raster.
        width: u32,
        /// Height of the raster.
        height: u32,
        /// Pixels in all runs.
        pixels: u64,
    },
}

impl Detections {
    /// Checks detections in a picture of `size` (width and height in pixels).
    pub fn new(size: (u32, u32), items: Vec<Detection>) -> Result<Self, DetectionsError> {
        if size.0 == 0 || size.1 == 0 {
            return Err(DetectionsError::NoPicture { width: size.0, height: size.1 });
        }
        if items.len() > DETECTIONS_MAX {
            return Err(DetectionsError::TooMany { count: items.len() });
        }
        items.iter().enumerate().try_for_each(|(place, item)| item.check(place))?;
        Ok(Self { size, items })
    }

    /// Width and height of the picture to whose pixels the coordinates refer.
    pub const fn size(&self) -> (u32, u32) {
        self.size
    }

    /// The detections.
    pub fn items(&self) -> &[Detection] {
        &self.items
    }

    /// Returns the detections without the picture's size.
    pub fn into_items(self) -> Vec<Detection> {
        self.items
    }

    /// Converts the detections to a picture of `size` pixels. Neither side may be 0.
    #[must_use]
    pub fn scaled_to(mut self, size: (u32, u32)) -> Self {
        if size == self.size {
            return self;
        }
        let across = f64::from(size.0) / f64::from(self.size.0);
        let down = f64::from(size.1) / f64::from(self.size.1);
        for item in &mut self.items {
            let [x1, y1, x2, y2] = item.xyxy;
            item.xyxy = [times(x1, across), times(y1, down), times(x2, across), times(y2, down)];
            for point in &mut item.key_points {
                (point.x, point.y) = (times(point.x, across), times(point.y, down));
            }
        }
        self.size = size;
        self
    }
}

/// Scales a coordinate. Finite numbers stay finite.
fn times(coordinate: f32, factor: f64) -> f32 {
    (f64::from(coordinate) * factor).clamp(f32::MIN.into(), f32::MAX.into()) as f32
}

impl Detection {
    fn check(&self, place: usize) -> Result<(), DetectionsError> {
        let finite = |what, value: f32| match value.is_finite() {
            true => Ok(()),
            false => Err(DetectionsError::NotFinite { place, what, value }),
        };
        let [x1, y1, x2, y2] = self.xyxy;
        for (what, value) in [("x1", x1), ("y1", y1), ("x2", x2), ("y2", y2)] {
            finite(what, value)?;
        }
        if x1 > x2 || y1 > y2 {
            return Err(DetectionsError::Inverted { place, xyxy: self.xyxy });
        }
        finite("score", self.score.unwrap_or_default())?;
        for point in &self.key_points {
            finite("key point's x", point.x)?;
            finite("key point's y", point.y)?;
            finite("key point's score", point.score.unwrap_or_default())?;
        }
        let bytes = self.class_name.len();
        if bytes > CLASS_NAME_BYTES_MAX {
            return Err(DetectionsError::ClassName { place, bytes });
        }
        self.mask.as_ref().map_or(Ok(()), |mask| mask.check(place))
    }
}

impl Mask {
    fn check(&self, place: usize) -> Result<(), DetectionsError> {
        let pixels = self.runs.iter().map(|run| u64::from(*run)).sum::<u64>();
        let raster = u64::from(self.width) * u64::from(self.height);
        if pixels == raster && (1..=MASK_PIXELS_MAX).contains(&raster) {
            return Ok(());
        }
        Err(DetectionsError::Mask { place, width: self.width, height: self.height, pixels })
    }
}

#[cfg(test)]
mod tests {
    use mez_core::setting::{Chains, default_ladder};
    use proptest::prelude::*;

    use super::*;

    fn boxed(xyxy: [f32; 4]) -> Detection {
        Detection { xyxy, ..Detection::default() }
    }

    fn of(item: Detection) -> Result<Detections, DetectionsError> {
        Detections::new((640, 480), vec![item])
    }

    /// Intersection over union.
    fn overlap(one: [f32; 4], other: [f32; 4]) -> f64 {
        let [one, other] = [one, other].map(|sides| sides.map(f64::from));
        let area = |[x1, y1, x2, y2]: [f64; 4]| (x2 - x1).max(0.0) * (y2 - y1).max(0.0);
        let common =
            area([one[0].max(other[0]), one[1].max(other[1]), one[2].min(other[2]), one[3].min(other[3])]);
        common / (area(one) + area(other) - common)
    }

    /// A box in a frame of any rung of every ladder is converted back to its place in the published frame, also for odd sizes.
    #[test]
    fn boxes_of_every_rung_come_back_where_they_were_seen() {
        for source in [(768, 576), (1920, 1080), (641, 479), (333, 77), (96, 128)] {
            let (wide, high) = (source.0 as f32, source.1 as f32);
            let there = [0.13 * wide, 0.4 * high, 0.31 * wide, 0.93 * high];
            let ladders =
                [Chains::ALL, Chains::TILES, Chains::NONE].map(|chains| default_ladder(source, chains));
            for rung in ladders.iter().flatten() {
                let size = rung.size(source);
                let seen = Detections::new(source, vec![boxed(there)]).unwrap().scaled_to(size);
                assert_eq!(seen.size(), size);
                let back = seen.scaled_to(source);
                assert!(overlap(there, back.items()[0].xyxy) > 0.999, "{source:?} at {rung}: {back:?}");
            }
        }
    }

    #[test]
    fn points_go_with_their_box_and_masks_stay_as_they_are() {
        let mask = Mask { width: 2, height: 2, runs: vec![1, 3] };
        let point = KeyPoint { x: 10.0, y: 20.0, score: Some(0.5) };
        let item = Detection {
            key_points: vec![point],
            mask: Some(mask.clone()),
            ..boxed([0.0, 10.0, 320.0, 480.0])
        };
        let wide = of(item).unwrap().scaled_to((1280, 480));
        let [item] = wide.items() else { panic!("{wide:?}") };
        assert_eq!(item.xyxy, [0.0, 10.0, 640.0, 480.0]);
        assert_eq!(item.key_points, [KeyPoint { x: 20.0, ..point }]);
        assert_eq!(item.mask, Some(mask));
    }

    #[test]
    fn what_is_no_detection_is_named() {
        let good = boxed([1.0, 2.0, 3.0, 4.0]);
        let said = |item| of(item).unwrap_err().to_string();
        assert!(said(boxed([1.0, f32::NAN, 3.0, 4.0])).contains("detection 0 has the y1 NaN"));
        assert!(said(boxed([5.0, 2.0, 3.0, 4.0])).contains("ends before it begins"));
        let score = Some(f32::INFINITY);
        assert!(said(Detection { score, ..good.clone() }).contains("the score inf"));
        let class_name = "x".repeat(CLASS_NAME_BYTES_MAX + 1);
        assert!(said(Detection { class_name, ..good.clone() }).contains("129 bytes"));
        let point = KeyPoint { y: f32::NAN, ..KeyPoint::default() };
        assert!(said(Detection { key_points: vec![point], ..good.clone() }).contains("key point's y"));
        for (width, height, runs) in [(2, 2, vec![3]), (0, 0, vec![]), (u32::MAX, 1, vec![u32::MAX])] {
            let mask = Some(Mask { width, height, runs });
            let wrong = Detection { mask, ..good.clone() };
            assert!(said(wrong).contains("fill the raster"));
        }
        assert!(matches!(Detections::new((0, 5), vec![]), Err(DetectionsError::NoPicture { .. })));
        let many = Detections::new((1, 1), vec![good; DETECTIONS_MAX + 1]);
        assert!(matches!(many, Err(DetectionsError::TooMany { .. })));
    }

    proptest! {
        /// Valid detections are valid at every size.
        #[test]
        fn scaling_keeps_detections_valid(
            xyxy in prop::array::uniform4(prop::num::f32::NORMAL | prop::num::f32::ZERO),
            sizes in prop::array::uniform4(1..=u32::MAX),
        ) {
            let [x1, y1, x2, y2] = xyxy;
            let item = boxed([x1.min(x2), y1.min(y2), x1.max(x2), y1.max(y2)]);
            let given = Detections::new((sizes[0], sizes[1]), vec![item]).unwrap();
            let scaled = given.scaled_to((sizes[2], sizes[3]));
            prop_assert_eq!(Detections::new(scaled.size(), scaled.items().to_vec()), Ok(scaled));
        }
    }
}
