// What is shown in tables: rules, notes, GPUs, facts, coverage.

function drawnTable(table) {
  return element('div', { class: 'table', tabindex: '0' }, element('table', {},
    element('thead', {}, element('tr', {}, table.columns.map((column) => element('th', { scope: 'col' }, column)))),
    element('tbody', {}, table.rows.map((row) => element('tr', {}, row.map((cell) => element('td', {}, sentence(cell)))))),
    table.left_out ? element('caption', {}, 'and ' + fixed(table.left_out, 9) + ' more') : ''));
}

function folded(title, table, open, count = table.rows.length + table.left_out) {
  if (!table.rows.length) return '';
  return element('details', { open: open }, element('summary', {}, title + ' (' + fixed(count, 9) + ')'), drawnTable(table));
}

// Rules of one state, those for the same reason in one row.
function drawnRules(title, state, open) {
  const found = data.outcomes.filter((outcome) => outcome.state === state);
  const reasons = new Map();
  for (const { rule, why } of found) reasons.set(why, [...(reasons.get(why) || []), rule]);
  const rows = Array.from(reasons, ([why, rules]) => [rules.join(', '), why]);
  return folded(title, { columns: ['rules', 'why'], rows, left_out: 0 }, open, found.length);
}

function drawFacts() {
  const { gpus, memory, kernels, facts, coverage } = data.tables;
  byId('facts').append(
    ...heading('facts', 'Facts and coverage'),
    element('ul', { class: 'small quiet' }, data.notes.map((note) => element('li', {}, sentence(note)))),
    folded('GPU activity (from recorded kernels)', gpus, true),
    folded('GPU memory when the snapshot was taken', memory, true),
    folded('Kernels that ncu measured', kernels, true),
    drawnRules('Rules that failed', 'failed', true),
    drawnRules('Rules that were not checked', 'not checked', true),
    drawnRules('Rules that found no problem', 'clear', false),
    folded('Facts', facts, false),
    folded('Coverage: what was recorded', coverage, false));
}
