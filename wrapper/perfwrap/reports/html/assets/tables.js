// What is told in tables: rules, notes, GPUs, facts, coverage.

function drawnTable(table) {
  return element('div', { class: 'table', tabindex: '0' }, element('table', {},
    element('thead', {}, element('tr', {}, table.columns.map((column) => element('th', { scope: 'col' }, column)))),
    element('tbody', {}, table.rows.map((row) => element('tr', {}, row.map((cell) => element('td', {}, cell))))),
    table.left_out ? element('caption', {}, 'and ' + fixed(table.left_out, 9) + ' more') : ''));
}

function folded(title, table, open) {
  if (!table.rows.length) return '';
  return element('details', { open: open }, element('summary', {}, title + ' (' + fixed(table.rows.length + table.left_out, 9) + ')'), drawnTable(table));
}

function drawFacts() {
  const { gpus, memory, kernels, facts, coverage } = data.tables;
  const rules = (state) => data.outcomes.filter((outcome) => outcome.state === state).map((outcome) => [outcome.rule, outcome.why]);
  const ruleTable = (state) => ({ columns: ['rule', 'why'], rows: rules(state), left_out: 0 });
  byId('facts').append(
    ...heading('facts', 'Facts and coverage'),
    element('ul', { class: 'small quiet' }, data.notes.map((note) => element('li', {}, note))),
    folded('What each GPU did while its kernels were recorded', gpus, true),
    folded('What held GPU memory when the snapshot was taken', memory, true),
    folded('Kernels that ncu measured', kernels, true),
    folded('Rules that failed', ruleTable('failed'), true),
    folded('Rules that could not be checked', ruleTable('not checked'), true),
    folded('Rules that looked and found nothing', ruleTable('clear'), false),
    folded('Facts', facts, false),
    folded('Coverage: who watched what', coverage, false));
}
