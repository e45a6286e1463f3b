// The views, their addresses and their keys.

const VIEWS = [
  { id: 'summary', name: 'Summary', show: summary },
  { id: 'line', name: 'Lines', show: lineView },
  { id: 'object', name: 'Objects', show: objectView },
  { id: 'machine', name: 'Machine', show: machineView },
  { id: 'sweep', name: 'Curves', show: sweepView, alone: true },
  { id: 'compare', name: 'Compare', show: compareView },
];

const KEYS = [
  ['1 to 6', 'the views'],
  ['[ and ]', 'the line or object before and after'],
  ['arrows, j and k, Page Up, Page Down, Home, End', 'move in a list'],
  ['/', 'filter the list'],
  ['r', 'choose the run'],
  ['?', 'this help'],
];

const main = document.getElementById('main');
let keys = {};

/** The view, run and rest of an address such as `#/line/0/3`. */
function address() {
  const [id, number, ...rest] = location.hash.replace(/^#\/?/, '').split('/');
  const view = VIEWS.find((one) => one.id === id) ?? (runs.length === 0 && sweeps.length > 0 ? VIEWS[4] : VIEWS[0]);
  const decoded = rest.map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  return { view, run: runs[Number(number)] ?? runs[0], rest: decoded };
}

function header({ view, run }) {
  const number = run ? runs.indexOf(run) : 0;
  const command = files.map((file) => (file.result ?? file.sweep).command?.join(' ')).filter(Boolean);
  document.getElementById('head').replaceChildren(
    el('div', { class: 'top' },
      el('h1', null, document.title.replace(/: hitm report$/, '')),
      el('p', { class: 'faint' }, run ? (run.host ?? '') + ' on ' + (run.machine || '-') + (run.arbitration ? ', ' + run.arbitration : '') : '', command.length ? [run ? '; ' : '', el('code', null, 'hitm ' + command[0]), command.length > 1 ? ' and ' + plural(command.length - 1, 'more command') : ''] : '')),
    el('nav', { 'aria-label': 'Views' }, el('ul', null, VIEWS.map((one, index) => el('li', null,
      el('a', { href: '#/' + one.id + '/' + number, 'aria-current': one === view ? 'page' : null, 'aria-keyshortcuts': String(index + 1) }, one.name)))),
    runs.length > 1 && !view.alone && view.id !== 'compare' ? choice('Run', runs.map((one, index) => [String(index), one.name]), String(number), (chosen) => { location.hash = '#/' + view.id + '/' + chosen; }) : null,
    el('button', { type: 'button', class: 'help', 'aria-label': 'Help: keys', click: help }, '?')));
}

function show() {
  const at = address();
  header(at);
  const place = el('div', { class: 'view ' + at.view.id });
  main.replaceChildren(place);
  keys = {};
  if (!at.run && !at.view.alone) {
    place.append(el('h2', null, at.view.name), missing(sweeps.length ? 'These files have curves and no runs: see Curves.' : 'The file has no runs: the command was interrupted, or every run failed.'));
    const failures = files.flatMap((file) => file.result?.failures ?? []);
    if (failures.length) place.append(el('h3', null, 'Runs without a result'), el('ul', null, failures.map((failure) => el('li', null, failure))));
    return;
  }
  if (at.run) prepare(at.run);
  keys = at.view.show(place, at.run, at.rest) ?? {};
}

/** Shows the keys. */
function help() {
  const dialog = el('dialog', { 'aria-labelledby': 'help-title', close: () => dialog.remove() },
    el('h2', { id: 'help-title' }, 'Keys'),
    el('dl', null, KEYS.map(([key, does]) => el('div', null, el('dt', null, el('kbd', null, key)), el('dd', null, does)))),
    el('form', { method: 'dialog' }, el('button', null, 'Close')));
  document.body.append(dialog);
  dialog.showModal();
}

document.addEventListener('keydown', (event) => {
  const inField = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog')) return;
  if (inField) {
    if (event.key === 'Escape') event.target.blur();
    return;
  }
  const view = VIEWS[Number(event.key) - 1];
  if (view) {
    const { run } = address();
    location.hash = '#/' + view.id + '/' + (run ? runs.indexOf(run) : 0);
    main.focus();
  } else if (event.key === '?') help();
  else if (event.key === '/') document.querySelector('.filter')?.focus();
  else if (event.key === 'r') document.querySelector('nav select')?.focus();
  else if (event.key in keys) keys[event.key]();
  else return;
  event.preventDefault();
});

addEventListener('hashchange', show);
show();
