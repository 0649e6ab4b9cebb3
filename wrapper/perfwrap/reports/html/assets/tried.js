// What changes were worth when perfwrap try measured them.

function drawTried() {
  if (!data.tried) return;
  const { table, edits, predictions } = data.tried;
  byId('tried').hidden = false;
  byId('tried').append(
    ...heading('tried', 'What was tried', 'Each variant is the unmodified program with one injected change, run in turns with the program as it is. A ratio below 1 is faster; in brackets its 95 % interval.'),
    drawnTable(table),
    element('ul', { class: 'small quiet' }, predictions.map((told) => element('li', {}, sentence(told)))),
    edits.map((edit) => [element('h3', {}, 'The edit to make for ' + edit.name), element('pre', { class: 'lines diff' }, edit.text)]));
}
