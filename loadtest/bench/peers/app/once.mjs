// One request, one process: what CGI does.
import { answer } from './hello.mjs';

process.stdout.write(answer());
