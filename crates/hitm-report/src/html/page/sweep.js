// Curves: sweeps, and the runs of a result file over sizes of machines.

/** Sweeps, and one for each workload of the result files that ran on several sizes. */
function allSweeps() {
  const all = sweeps.map((sweep) => ({ title: sweep.workload + ' (' + sweep.file + ')', points: sweep.points, failures: sweep.failures ?? [] }));
  const simulated = runs.filter((run) => run.host !== 'native' && run.on.cpus);
  const key = (run) => JSON.stringify([run.file, run.workload, run.profile ?? '']);
  for (const one of new Set(simulated.map(key))) {
    const own = simulated.filter((run) => key(run) === one);
    if (new Set(own.map((run) => run.on.cpus)).size < 2) continue;
    all.push({
      title: own[0].workload + ' (' + own[0].file + ')', failures: [],
      points: own.map((run) => ({ ...run, machine: '', cpus: run.on.cpus, misses: run.misses })),
    });
  }
  return all;
}

/** What was measured or published for a sweep's metric: native runs, and figures that runs carry. */
function measured(name) {
  return runs.filter((run) => run.host === 'native' && run.metric.name === name && run.on.cpus)
    .map((run) => ({ name: 'measured, ' + run.mitigation, x: run.on.cpus, y: run.metric.value, interval: run.metric.interval }));
}

function published(points) {
  const has = new Set(points.map((point) => point.mitigation));
  return runs.filter((run) => run.published && has.has(run.mitigation) && run.on.cpus)
    .map((run) => ({ name: 'published, ' + run.mitigation, x: run.on.cpus, y: run.published.relative }));
}

/** Groups points by the name of their series. */
function grouped(points, name, apart) {
  const by = new Map();
  for (const point of points) {
    const one = by.get(name(point)) ?? { name: name(point), points: [], apart };
    one.points.push(point);
    by.set(one.name, one);
  }
  return [...by.values()].map((one) => ({ ...one, points: one.points.sort((a, b) => a.x - b.x) }));
}

function sweepView(place) {
  const all = allSweeps();
  if (all.length === 0) {
    place.append(missing('No curve: these files have one size of machine. ', el('code', null, 'hitm sweep WORKLOAD --json curve.json'), ' makes one; several files can be given to ', el('code', null, 'hitm report'), '.'));
    return;
  }
  for (const sweep of all) {
    const { points } = sweep;
    const differ = (key) => new Set(points.map((point) => point[key])).size > 1;
    const name = (point) => [point.mitigation, differ('arbitration') ? point.arbitration : '', differ('machine') ? point.machine : ''].filter(Boolean).join(', ');
    const metric = points[0]?.metric ?? { name: 'metric' };
    const curve = grouped(points.map((point) => ({ x: point.cpus, y: point.metric.value, interval: point.metric.interval, of: name(point) })), (point) => point.of, false);
    const relative = grouped(points.filter((point) => Number.isFinite(point.relative ?? NaN)).map((point) => ({ x: point.cpus, y: point.relative, interval: point.relative_interval, of: name(point) })), (point) => point.of, false);
    place.append(el('h2', null, sweep.title), curves(sweep.title, 'CPUs', words(metric.name), [...curve, ...grouped(measured(metric.name), (point) => point.name, true)]));
    if (relative.length > 1) place.append(curves('Over the baseline', 'CPUs', words(metric.name) + ' over the baseline’s', [...relative, ...grouped(published(points), (point) => point.name, true)]));
    place.append(table('Values', [
      { head: 'CPUs', cell: (point) => String(point.cpus) },
      { head: 'curve', cell: name },
      { head: words(metric.name), number: true, cell: (point) => figure(point.metric) },
      { head: 'over the baseline', number: true, cell: (point) => factor(point.relative, point.relative_interval) },
      { head: 'kernel share', number: true, cell: (point) => percent(point.kernel_share) },
      { head: 'idle', number: true, cell: (point) => percent(point.idle_share) },
    ], points));
    if (sweep.failures.length) place.append(el('h3', null, 'Runs without a result'), el('ul', null, sweep.failures.map((failure) => el('li', null, failure))));
  }
}
