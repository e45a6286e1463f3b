// The summary: where the time goes, the hottest lines, what to look at first.

/** The parts of a run's time, as shares of all time. */
function timeParts(run) {
  const idle = run.idle_share ?? 0;
  const kernel = run.kernel_share ?? 0;
  const busy = 1 - idle;
  const named = Object.entries(run.kernel_parts ?? {}).map(([name, value]) => ({ name: name.startsWith('lines:') ? 'waits for lines of ' + name.slice(6) : words(name), value: value * busy, kind: 'kernel' }));
  named.sort((a, b) => b.value - a.value);
  const parts = [{ name: 'tasks', value: (1 - kernel) * busy, kind: 'user' }];
  if (named.length === 0 && kernel > 0) named.push({ name: 'kernel', value: kernel * busy, kind: 'kernel' });
  return [...parts, ...named, { name: 'idle', value: idle, kind: 'idle' }].filter((part) => part.value > 0);
}

/** One bar of all time, and its parts in words. */
function timeBar(run) {
  if (!Number.isFinite(run.kernel_share ?? NaN)) return missing('No time was measured.');
  const parts = timeParts(run);
  let [from, kernels] = [0, 0];
  for (const part of parts) part.opacity = part.kind === 'kernel' ? Math.max(0.25, 1 - 0.12 * kernels++).toFixed(2) : 1;
  const boxes = parts.map((part) => {
    const box = svg('rect', { x: 1000 * from, y: 0, width: Math.max(0.5, 1000 * part.value), height: 26, class: part.kind, 'fill-opacity': part.opacity },
      svg('title', null, part.name + ': ' + percent(part.value)));
    from += part.value;
    return box;
  });
  const label = 'Where the time of all CPUs goes: ' + parts.map((part) => part.name + ' ' + percent(part.value)).join(', ');
  const [large, small] = [parts.filter((part) => part.value >= 0.001), parts.filter((part) => part.value < 0.001)];
  return el('div', null,
    svg('svg', { viewBox: '0 0 1000 26', preserveAspectRatio: 'none', class: 'time', role: 'img', 'aria-label': label }, boxes),
    el('ul', { class: 'legend' }, large.map((part) => el('li', { class: part.kind, '--opacity': part.opacity }, el('span', { class: 'value' }, percent(part.value)), ' ', part.name)),
      small.length ? el('li', null, el('span', { class: 'value' }, percent(sum(small, (part) => part.value))), ' ' + plural(small.length, 'smaller part')) : null));
}

/** Where a line of a run is shown. */
const lineAddress = (run, line) => '#/line/' + runs.indexOf(run) + '/' + run.lines.indexOf(line);

/** One line of what to look at first, in words that the counts support. */
function advice(run, line) {
  const pairs = culprits(line);
  const item = [el('a', { href: lineAddress(run, line) }, line.name), ': ', el('strong', null, percent(line.waits / run.waits)), ' of all waits for lines. '];
  const first = pairs[0];
  if (!first) {
    item.push('No store invalidated these copies: they were read for the first time, or evicted.');
    return el('li', null, item);
  }
  item.push(el('code', null, first.site.function), ' waits for ', el('code', null, first.field), '; ', percent(first.wait / line.waits),
    ' of the line’s waits follow a write of ', el('code', null, first.by.field), ' in ', el('code', null, first.by.function), '. ');
  const other = falselyShared(line);
  if (other > 0.5) item.push('False sharing: ' + percent(other) + ' of the waits follow writes to another field. Fields that are not used together want lines of their own.');
  else if (other > 0.15) item.push('Mostly one word is shared, and ' + percent(other) + ' of the waits follow writes to another field.');
  else item.push('True sharing: the word itself is written and read. Moving fields gains little here; a word by scope, or fewer writes, may.');
  return el('li', null, item);
}

function hottest(run, count) {
  return table('The hottest lines' + (run.lines.length > count ? ', ' + count + ' of ' + run.lines.length : ''), [
    { head: 'object, line', cell: (line) => el('a', { href: lineAddress(run, line) }, line.name) },
    { head: 'bytes', title: 'where in the line the waits are', cell: strip },
    { head: 'waits', number: true, class: 'bars', cell: (line) => bar(line.waits / run.waits, percent(line.waits / run.waits)) },
    { head: 'cycles per miss', number: true, cell: (line) => short(line.waits / Math.max(1, line.misses)) },
    { head: 'misses', number: true, cell: (line) => short(line.misses) },
    { head: 'local HITMs', number: true, cell: (line) => short(line.hitm_local) },
    { head: 'remote HITMs', number: true, cell: (line) => short(line.hitm_remote) },
    { head: 'loads', number: true, cell: (line) => short(line.loads) },
    { head: 'stores', number: true, cell: (line) => short(line.stores) },
  ], run.lines.slice(0, count));
}

/** The waits for all objects of a kind, and for their fields. */
function kinds(run) {
  const rows = run.objects.flatMap((all) => [{ ...all, name: all.object, whole: true }, ...all.fields.map((field) => ({ ...field, name: field.field }))]);
  return table('All objects of a kind', [
    { head: 'objects, field', cell: (row) => (row.whole ? row.name : el('span', { class: 'inner' }, row.name)) },
    { head: 'longest wait', title: 'the function that waited longest for the field', cell: (row) => (row.whole ? '' : el('code', { title: row.location }, row.function)) },
    { head: 'waits', number: true, class: 'bars', cell: (row) => bar(row.cycles / run.waits, percent(row.cycles / run.waits)) },
    { head: 'cycles per miss', number: true, cell: (row) => short(row.cycles / Math.max(1, row.misses)) },
    { head: 'misses', number: true, cell: (row) => short(row.misses) },
    { head: 'HITMs', number: true, cell: (row) => short(row.hitm_local + row.hitm_remote) },
    { head: 'lines', number: true, cell: (row) => (row.whole ? short(row.lines) : '') },
  ], rows);
}

function summary(place, run) {
  const figures = [
    [words(run.metric.name), figure(run.metric)],
    ['over the baseline', Number.isFinite(run.relative ?? NaN) ? factor(run.relative, run.relative_interval) : null],
    ['kernel share', percent(run.kernel_share)],
    ['idle', percent(run.idle_share)],
    ['accesses that missed', run.accesses ? percent(run.misses / run.accesses) : '-'],
    ['CPUs', run.on.cpus ? String(run.on.cpus) : null],
    ['seeds', String(run.seeds?.length || 1)],
  ].filter(([, value]) => value);
  place.append(
    el('dl', { class: 'figures' }, figures.map(([name, value]) => el('div', null, el('dt', null, name), el('dd', null, value)))),
    el('h2', null, 'Where the time goes'), timeBar(run), el('h2', null, 'What to look at first'));
  const first = run.lines.filter((line) => line.waits > 0.02 * run.waits).slice(0, 4);
  place.append(first.length ? el('ol', { class: 'advice' }, first.map((line) => advice(run, line)))
    : missing(run.host === 'native' ? 'A native run counts no lines: run it on a simulated machine.' : 'No line was waited for: this run has no contention that the model sees.'));
  // Where each kind is one line, the lines say as much.
  if (run.objects.some((all) => all.lines > 1)) place.append(el('h2', null, 'Kinds of objects'), kinds(run));
  if (run.lines.length) {
    place.append(el('h2', null, 'Lines'), hottest(run, 20),
      run.lines.length > 20 ? el('p', null, el('a', { href: lineAddress(run, run.lines[0]) }, 'All ' + run.lines.length + ' lines')) : '');
  }
  const beside = runs.filter((other) => other.file === run.file && other.workload === run.workload && other.machine === run.machine && other.arbitration === run.arbitration && other.profile === run.profile && Number.isFinite(other.relative ?? NaN));
  if (beside.length > 1) {
    place.append(el('h2', null, 'Beside the baseline'), el('p', null, words(run.metric.name) + ' over the baseline’s; dots with 95 % intervals, hollow marks as published.'),
      dots('Beside the baseline', beside.map((other) => ({ name: other.mitigation, value: other.relative, interval: other.relative_interval, published: other.published?.relative })), 1));
  }
  const notes = [...(run.notes ?? []), ...files.flatMap((file) => (file.name === run.file ? file.result.failures ?? [] : []))];
  if (notes.length) place.append(el('h2', null, 'Notes'), el('ul', null, notes.map((note) => el('li', null, note))));
}
