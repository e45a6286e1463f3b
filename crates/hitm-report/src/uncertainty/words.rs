//! What a study says, as text.

use super::{Conclusion, Coverage, ENOUGH, Effect, Study};
use crate::columns::{Align, Columns};

impl Study {
    /// Renders the gains, the conclusions and the coverage.
    pub(super) fn render(&self, width: usize) -> String {
        let in_trajectories = self.machines.iter().filter(|drawn| drawn.trajectory.is_some()).count();
        let profile = if self.profile.is_empty() { String::new() } else { format!(" {}", self.profile) };
        let mut text = format!(
            "{}{profile}, simulated on machines like {} ({} CPUs): {} for the intervals, {in_trajectories} for the effects of {} parameters; arbitration {}\n",
            self.workload,
            self.machine.name,
            self.machine.cpus,
            self.machines.len() - in_trajectories,
            self.parameters.len() + usize::from(self.policies.len() > 1),
            self.policies.join(" or "),
        );
        let compared = self.mitigations.first().map_or("", String::as_str);
        text.push_str(&format!(
            "{}: gain over {compared} on the same machine with the same seed, 90 % of the machines between\n\n",
            self.metric.replace('_', " ")
        ));
        let mut table = Columns::new(&[
            ("", Align::Left),
            ("from\n[%]", Align::Right),
            ("median\n[%]", Align::Right),
            ("to\n[%]", Align::Right),
            ("machines\nthat gain", Align::Right),
            ("published\n[%]", Align::Right),
        ]);
        for gain in self.conclusions.iter().filter(|gain| gain.over == compared) {
            let published = self.published_gain(&gain.mitigation);
            table.row(vec![
                gain.mitigation.clone(),
                percent(gain.low),
                percent(gain.median),
                percent(gain.high),
                format!("{:.0} %", 100.0 * gain.share),
                published.map_or_else(|| "-".to_owned(), percent),
            ]);
        }
        if self.conclusions.is_empty() {
            text.push_str("no machine completed a unit of work: ask for a longer --duration\n");
            return text;
        }
        text.push_str(&table.render(width));
        text.push('\n');
        text.push_str(&self.render_conclusions());
        if let Some(Coverage { published, inside, median_width, no_effect_error }) = &self.coverage {
            text.push_str(&format!(
                "{inside} of {published} published gains are inside their intervals, whose median width is {:.1} points; `no effect` is {:.1} points off in the mean\n",
                100.0 * median_width,
                100.0 * no_effect_error
            ));
        }
        text
    }

    /// Renders what follows, and which parameters decide it.
    #[must_use]
    pub fn render_conclusions(&self) -> String {
        let mut text = String::new();
        for conclusion in &self.conclusions {
            text.push_str(&format!("{}\n", conclusion.words));
            if !conclusion.decided_by.is_empty() {
                let effect = |effect: &Effect| format!("{} ({:.1} points)", effect.parameter, 100.0 * effect.effect);
                let effects: Vec<String> = conclusion.decided_by.iter().map(effect).collect();
                let chance = conclusion.chance.map(|chance| format!("; another seed {:.1} points", 100.0 * chance));
                let chance = chance.unwrap_or_default();
                text.push_str(&format!("  decided by {}{chance}\n", effects.join(", ")));
            }
        }
        text
    }
}

fn percent(part: f64) -> String {
    format!("{:+.1}", 100.0 * part)
}

/// Says what a gain is.
pub(super) fn in_words(gain: Conclusion) -> Conclusion {
    let Conclusion { ref mitigation, low, high, share, .. } = gain;
    let on = |share: f64| format!("on {:.0} % of the machines", 100.0 * share);
    // Not -0.
    let whole = |part: f64| format!("{:.0}", (100.0 * part).round() + 0.0);
    let words = if share >= ENOUGH {
        format!("{mitigation} gains {} to {} %, {}", whole(low), whole(high), on(share))
    } else if share <= 1.0 - ENOUGH {
        format!("{mitigation} loses {} to {} %, {}", whole(-high), whole(-low), on(1.0 - share))
    } else {
        let (low, high) = (percent(low), percent(high));
        format!("whether {mitigation} gains is undetermined: {low} to {high} %, a gain {}", on(share))
    };
    Conclusion { words, ..gain }
}

/// Says what an order is.
pub(super) fn order_in_words(order: Conclusion) -> Conclusion {
    let Conclusion { ref mitigation, ref over, share, .. } = order;
    let percent = 100.0 * share;
    let words = if order.is_determined {
        format!("{mitigation} is ahead of {over} on {percent:.0} % of the machines")
    } else {
        format!(
            "the order of {mitigation} and {over} is undetermined: the first is ahead on {percent:.0} % of the machines"
        )
    };
    Conclusion { words, ..order }
}
