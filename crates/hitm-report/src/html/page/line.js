// One line: its bytes, the code that touches it, and who invalidates whom.

/** Bytes that a line can be shown as: families with larger lines move these together. */
const WIDTHS = [64, 128, 256];

function places(run, lines, whole) {
  const all = lines.flatMap((line) => line.fields.flatMap((field) => field.sites.map((site) => ({ field, site, wait: waitOf(site) }))));
  all.sort((a, b) => b.wait - a.wait || b.site.misses - a.site.misses);
  const rows = all.filter(({ site }) => site.misses > 0);
  const hits = all.length - rows.length;
  const parts = run.on.domains?.length ? groupings(run.on)[0] : null;
  const only = hits ? el('p', { class: 'faint' }, plural(hits, 'more place') + (hits === 1 ? ' touches' : ' touch') + ' it and never missed.') : '';
  return [table('The code that touches it', [
    { head: 'field', cell: ({ field }) => [el('code', null, field.field), ' ', el('span', { class: 'faint' }, hexadecimal(field.offset))] },
    { head: 'function', cell: ({ site }) => [el('code', null, site.function), el('div', { class: 'faint', title: site.location }, site.location.replace(/^.*\//, ''))] },
    { head: 'access', cell: ({ site }) => (site.kind === 'rmw' ? 'RMW' : site.kind ?? '-') },
    { head: 'waits', number: true, class: 'bars', cell: ({ wait }) => bar(wait / whole, percent(wait / whole)) },
    { head: 'cycles per miss', number: true, cell: ({ site }) => short(site.cycles) },
    { head: 'misses', number: true, cell: ({ site }) => short(site.misses) },
    { head: 'CPUs', number: true, title: 'CPUs that missed' + (parts ? ': one bar for each ' + parts.name : ''), cell: ({ site }) => [spread(site.cpus_by_part), ' ', String(site.cpus ?? '-')] },
    { head: 'invalidated by', cell: ({ site }) => {
      const by = (site.invalidated_by ?? [])[0];
      return by ? [el('code', null, by.field), ' in ', el('code', null, by.function), ' ', percent(by.share)] : '-';
    } },
  ], rows), only];
}

/** Counts of CPUs by part as small bars. */
function spread(counts) {
  if (!counts?.length || counts.length > 64) return '';
  const most = Math.max(...counts, 1);
  const wide = counts.length > 16 ? 2 : 4;
  return svg('svg', { width: wide * counts.length, height: 12, class: 'spread', role: 'img', 'aria-label': 'by part: ' + counts.join(', ') },
    counts.map((count, part) => svg('rect', { x: part * wide, y: 12 - 12 * count / most, width: wide - 1, height: 12 * count / most, class: 'ink' })));
}

/** Who invalidates whom, by code: the largest rows and columns. */
function byCode(lines) {
  const pairs = lines.flatMap(culprits).sort((a, b) => b.wait - a.wait);
  if (pairs.length === 0) return missing('No store invalidated a copy of this line.');
  const losers = [...new Set(pairs.map((pair) => pair.loser))].slice(0, 10);
  const takers = [...new Set(pairs.map((pair) => pair.taker))].slice(0, 6);
  const value = (row, column) => sum(pairs.filter((pair) => pair.loser === losers[row] && pair.taker === takers[column]), (pair) => pair.wait);
  return matrix('Cycles waited, by the code that waits and the code that wrote; the largest', 'waits ↓ after a write by →', losers, takers, value, short);
}

function lineView(place, run, [number]) {
  if (run.lines.length === 0) {
    place.append(missing('This run has no lines: nothing was waited for, or it ran natively.'));
    return;
  }
  const detail = el('div', { class: 'detail' });
  let width = LINE;
  const list = listBox('Lines', run.lines, (line) => [el('span', { class: 'name' }, line.name), el('span', { class: 'value' }, percent(line.waits / run.waits))],
    run.lines[number] ?? run.lines[0], (line) => {
      history.replaceState(null, '', lineAddress(run, line));
      show(line);
    });

  function show(line) {
    const per = width / LINE;
    const first = Math.floor(line.line / per) * per;
    const lines = run.lines.filter((other) => other.object === line.object && other.index === line.index && other.line >= first && other.line < first + per);
    const waits = sum(lines, (one) => one.waits);
    const cycles = line.cycles_per_load;
    const facts = [['of all waits', percent(waits / run.waits)], ['misses', short(sum(lines, (one) => one.misses))], ['loads', short(sum(lines, (one) => one.loads))], ['stores', short(sum(lines, (one) => one.stores))],
      ['local, remote HITMs', short(sum(lines, (one) => one.hitm_local)) + ', ' + short(sum(lines, (one) => one.hitm_remote))],
      ['cycles per load that missed', short(cycles.mean)], ['median, 99 %, longest', [cycles.p50, cycles.p99, cycles.max].map(short).join(', ')],
      ['false sharing', percent(falselyShared(line))]];
    const exchanged = lines.flatMap((one) => one.exchanged ?? []);
    detail.replaceChildren(
      el('h2', null, line.object, line.index === undefined ? '' : '[' + line.index + ']', ', ', per === 1 ? 'line ' + line.line : 'bytes ' + hexadecimal(first * LINE) + ' to ' + hexadecimal((first + per) * LINE)),
      el('p', null, el('a', { href: '#/object/' + runs.indexOf(run) + '/' + encodeURIComponent(line.object) }, 'The whole object'), line.address ? el('span', { class: 'faint' }, ', at ' + line.address) : '',
        run.within?.[line.object] ? el('span', { class: 'faint' }, '; the object begins at ' + hexadecimal(run.within[line.object]) + ' of its first line, and offsets count from the line') : ''),
      el('dl', { class: 'figures' }, facts.map(([name, value]) => el('div', null, el('dt', null, name), el('dd', null, value)))),
      choice('Bytes shown', WIDTHS.map((one) => [String(one), String(one)]), String(width), (chosen) => { width = Number(chosen); show(line); }),
      ruler(wordsOf(run, line.object, lines, first * LINE, (first + per) * LINE), first * LINE, width),
      el('p', { class: 'key' }, 'Each byte is darker the more it is ', el('span', { class: 'reads' }, 'read'), ', ', el('span', { class: 'writes' }, 'written'), ' and ', el('span', { class: 'cost' }, 'waited for'), ', relative to the hottest (square root). Shaded bytes belong to no field that is known.'),
      ...places(run, lines, waits || 1),
      el('h2', null, 'Who invalidates whom'), byCode(lines), exchanges('Cycles waited, by part of the machine', run.on, exchanged));
  }

  place.append(el('div', { class: 'split' }, list.element, detail));
  show(run.lines[number] ?? run.lines[0]);
  return { '[': () => list.step(-1), ']': () => list.step(1) };
}
