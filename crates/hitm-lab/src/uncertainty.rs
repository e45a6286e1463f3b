//! Which machines to draw from the ranges of the model's parameters.
//!
//! Two designs. A *Latin hypercube* gives machines that together go evenly through every range:
//! what they give is the interval of a result. Morris's *trajectories* change one parameter at a
//! time: what a change does is the *effect* of its parameter, and the mean of the effects' sizes
//! says which parameters decide a result.
//!
//! M. McKay, R. Beckman, W. Conover, "A Comparison of Three Methods for Selecting Values of Input
//! Variables", Technometrics 21 (1979). M. Morris, "Factorial Sampling Plans for Preliminary
//! Computational Experiments", Technometrics 33 (1991). F. Campolongo, J. Cariboni, A. Saltelli,
//! "An effective screening design for sensitivity analysis of large models", Environmental
//! Modelling & Software 22 (2007): the mean of the sizes, which effects of both signs do not cancel
//! in.

use hitm_machine::{ARBITRATION, Draw, Random, Range, SEED};

/// The levels of a range that trajectories visit: 0, a third, two thirds and 1. Morris advises an
/// even number of levels and a step of half of them and a bit: from each level to one other.
const LEVELS: u64 = 4;
/// The step.
const STEP: f64 = 2.0 / 3.0;

/// Trajectories by default: Morris's own examples have four.
pub const TRAJECTORIES: usize = 4;

/// A sequence of draws, each of which differs from the one before in one parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Trajectory {
    /// The draws: one more than there are parameters.
    pub draws: Vec<Draw>,
    /// For each draw but the first: the parameter that moved, as its place in [`Draw::NAMES`].
    pub moved: Vec<usize>,
}

/// Returns `count` draws. Each parameter has one value in each of `count` equal parts of its range.
#[must_use]
pub fn latin_hypercube(count: usize, seed: u64) -> Vec<Draw> {
    let mut draws = vec![Draw { places: Vec::new() }; count];
    for dimension in 0..Draw::NAMES.len() {
        // Another stream for each parameter: one that is added changes none of the others.
        let mut random = Random::new(seed, dimension as u64);
        let parts = shuffled(count, &mut random);
        for (draw, part) in draws.iter_mut().zip(parts) {
            draw.places.push((part as f64 + random.unit()) / count as f64);
        }
    }
    draws
}

/// Returns `count` trajectories through the parameters `names`. The others stay in the middle of
/// their ranges.
///
/// # Panics
/// When a name is none of [`Draw::NAMES`].
#[must_use]
pub fn trajectories(count: usize, names: &[&str], seed: u64) -> Vec<Trajectory> {
    let of = |name: &&str| Draw::NAMES.iter().position(|known| known == name).expect("a name of what is drawn");
    let dimensions: Vec<usize> = names.iter().map(of).collect();
    let trajectory = |index: usize| {
        // Behind the streams of the hypercube.
        let mut random = Random::new(seed, (Draw::NAMES.len() + index) as u64);
        let mut draw = Draw { places: vec![0.5; Draw::NAMES.len()] };
        for &dimension in &dimensions {
            draw.places[dimension] = random.below(LEVELS) as f64 / (LEVELS - 1) as f64;
        }
        let mut draws = vec![draw.clone()];
        let order = shuffled(dimensions.len(), &mut random);
        let moved: Vec<usize> = order.into_iter().map(|place| dimensions[place]).collect();
        for &dimension in &moved {
            // From each of the four levels one step leads to another one, up or down.
            let place = &mut draw.places[dimension];
            *place = if *place > 0.5 { (*place - STEP).max(0.0) } else { (*place + STEP).min(1.0) };
            draws.push(draw.clone());
        }
        Trajectory { draws, moved }
    };
    (0..count).map(trajectory).collect()
}

/// A machine to be run.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// Its number, from 0.
    pub index: usize,
    /// The trajectory that it belongs to; `None` for a machine of the intervals.
    pub trajectory: Option<usize>,
    /// The parameter in which it differs from the machine before it in the trajectory.
    pub moved: Option<&'static str>,
    /// The draw.
    pub draw: Draw,
    /// The random seed of its run.
    pub seed: u64,
}

/// Returns the machines of a study: `count` for the intervals, then those of `paths` trajectories
/// through `ranges`, the policy if there are several `policies`, and the seed.
#[must_use]
pub fn trials(count: usize, paths: usize, ranges: &[Range], policies: usize, first_seed: u64) -> Vec<Trial> {
    let mut trials: Vec<Trial> = Vec::new();
    for (index, draw) in latin_hypercube(count, first_seed).into_iter().enumerate() {
        let seed = first_seed.saturating_add(index as u64);
        trials.push(Trial { index, trajectory: None, moved: None, draw, seed });
    }
    let mut names: Vec<&str> = ranges.iter().map(|range| range.name.as_str()).collect();
    names.extend((policies > 1).then_some(ARBITRATION));
    names.push(SEED);
    for (path, found) in trajectories(paths, &names, first_seed).into_iter().enumerate() {
        let moved = std::iter::once(None).chain(found.moved.into_iter().map(Some));
        for (draw, moved) in found.draws.into_iter().zip(moved) {
            // Two seeds for each trajectory.
            let seed = first_seed.saturating_add(2 * path as u64 + u64::from(draw.has_other_seed()));
            let moved = moved.map(|dimension| Draw::NAMES[dimension]);
            trials.push(Trial { index: trials.len(), trajectory: Some(path), moved, draw, seed });
        }
    }
    trials
}

/// Returns the numbers below `count` in a random order (Fisher and Yates).
fn shuffled(count: usize, random: &mut Random) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for left in (1..count).rev() {
        order.swap(left, random.below(left as u64 + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hypercube_has_one_value_in_each_part_of_each_range() {
        let draws = latin_hypercube(10, 7);
        for dimension in 0..Draw::NAMES.len() {
            let mut parts: Vec<usize> = draws.iter().map(|draw| (draw.places[dimension] * 10.0) as usize).collect();
            assert_ne!(parts, (0..10).collect::<Vec<_>>(), "in a random order");
            parts.sort_unstable();
            assert_eq!(parts, (0..10).collect::<Vec<_>>(), "{}", Draw::NAMES[dimension]);
        }
        assert_eq!(draws, latin_hypercube(10, 7));
        assert_ne!(draws, latin_hypercube(10, 8));
    }

    #[test]
    fn a_trajectory_moves_each_parameter_once_by_a_step_within_its_range() {
        let names = ["same_llc_ns", "arbitration", "switch_ns"];
        let all = trajectories(20, &names, 1);
        let mut up = 0;
        for Trajectory { draws, moved } in &all {
            assert_eq!((draws.len(), moved.len()), (4, 3));
            let mut each: Vec<&str> = moved.iter().map(|&dimension| Draw::NAMES[dimension]).collect();
            each.sort_unstable();
            assert_eq!(each, ["arbitration", "same_llc_ns", "switch_ns"]);
            for (pair, &dimension) in draws.windows(2).zip(moved) {
                let (before, after) = (pair[0].places[dimension], pair[1].places[dimension]);
                assert!(((after - before).abs() - STEP).abs() < 1e-9 && (0.0..=1.0).contains(&after));
                up += usize::from(after > before);
                let others = |draw: &Draw| {
                    let mut places = draw.places.clone();
                    places.remove(dimension);
                    places
                };
                assert_eq!(others(&pair[0]), others(&pair[1]));
            }
        }
        assert!((15..=45).contains(&up), "{up} of 60 steps go up");
    }
}
