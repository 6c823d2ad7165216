// node server.js PORT: answers every request.
const server = require('http').createServer((request, response) => response.end('hello\n'));
server.listen(Number(process.argv[2]), '127.0.0.1');
