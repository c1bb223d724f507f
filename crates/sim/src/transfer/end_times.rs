//! What the movers of both ends did, as a client knows it.

/// Seconds of the mover threads of an end, sums.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct MoverTimes {
    pub(super) elapsed_s: f64,
    pub(super) running_s: f64,
    pub(super) runnable_s: f64,
    /// In storage.
    pub(super) asleep_s: f64,
}

/// What a client knows of both ends.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct EndTimes {
    pub(super) source: MoverTimes,
    pub(super) destination: MoverTimes,
}

impl EndTimes {
    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self {
            source: self.source.since(&earlier.source),
            destination: self.destination.since(&earlier.destination),
        }
    }

    /// The end whose movers need processors more.
    pub(super) fn busier(&self) -> &MoverTimes {
        let needs = |times: &MoverTimes| times.share(times.running_s + times.runnable_s);
        match needs(&self.destination) > needs(&self.source) {
            true => &self.destination,
            false => &self.source,
        }
    }
}

impl MoverTimes {
    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self {
            elapsed_s: self.elapsed_s - earlier.elapsed_s,
            running_s: self.running_s - earlier.running_s,
            runnable_s: self.runnable_s - earlier.runnable_s,
            asleep_s: self.asleep_s - earlier.asleep_s,
        }
    }

    /// `part` of the time of all.
    pub(super) fn share(&self, part: f64) -> f64 {
        match self.elapsed_s > 0.0 {
            true => (part / self.elapsed_s).clamp(0.0, 1.0),
            false => 0.0,
        }
    }

    pub(super) fn add(&mut self, more: &Self) {
        self.elapsed_s += more.elapsed_s;
        self.running_s += more.running_s;
        self.runnable_s += more.runnable_s;
        self.asleep_s += more.asleep_s;
    }
}
