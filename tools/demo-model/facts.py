"""Hand-written facts in simple English (general knowledge, written for this project)."""

# animal | eats | lives | fact
A = """cat|meat and fish|in homes with people|Cats can see well in the dark
dog|meat and dog food|in homes with people|Dogs have a very good sense of smell
fox|mice, birds and berries|in forests and fields|A fox has a long, bushy tail
rabbit|grass, leaves and carrots|in fields and in burrows under the ground|Rabbits have long ears and can jump far
owl|mice and small animals|in trees in the forest|Owls hunt at night and fly very quietly
bear|fish, berries and honey|in forests and mountains|Many bears sleep for most of the winter
mouse|seeds, grain and cheese|in fields and houses|A mouse is very small and can hide almost anywhere
frog|insects and worms|near ponds and rivers|Frogs start their life as tadpoles
duck|plants, seeds and small water animals|on lakes and rivers|Ducks have feet that help them swim
horse|grass, hay and oats|on farms and in open fields|Horses can sleep while standing
cow|grass and hay|on farms|Cows give us milk
pig|vegetables, grain and roots|on farms|Pigs are smart and like to roll in mud
sheep|grass|on farms and hills|Sheep give us wool
goat|grass, leaves and bushes|on farms and mountains|Goats can climb steep rocks
hen|grain, seeds and worms|on farms|Hens lay eggs
lion|large animals such as zebras|in the grasslands of Africa|Lions live in groups called prides
tiger|deer and wild pigs|in the forests of Asia|Every tiger has its own pattern of stripes
elephant|grass, leaves and fruit|in Africa and Asia|The elephant is the largest animal on land
monkey|fruit, leaves and nuts|in trees in warm forests|Monkeys use their hands and feet to climb
penguin|fish|in cold places near the sea|Penguins cannot fly, but they swim very well
whale|small sea animals and fish|in the ocean|The blue whale is the largest animal in the world
dolphin|fish|in the ocean|Dolphins talk to each other with clicks and whistles
shark|fish and other sea animals|in the ocean|Sharks have many rows of teeth
turtle|plants, insects and fish|in water and on land|A turtle carries its hard shell on its back
snail|leaves and plants|in gardens and wet places|A snail moves very slowly and carries its shell
bee|nectar and pollen from flowers|in a hive|Bees make honey
ant|seeds, sugar and small insects|in nests under the ground|Ants can carry things much heavier than themselves
butterfly|nectar from flowers|in gardens and meadows|A butterfly starts its life as a caterpillar
spider|insects|in webs, houses and gardens|A spider has eight legs
squirrel|nuts and seeds|in trees|Squirrels hide nuts for the winter
deer|grass, leaves and twigs|in forests|Male deer grow antlers on their heads
wolf|deer and other animals|in forests and mountains|Wolves live and hunt in groups called packs
hedgehog|insects, worms and snails|in gardens and hedges|A hedgehog rolls into a ball when it is afraid
parrot|seeds, nuts and fruit|in warm forests|Some parrots can copy human words
crow|seeds, insects and scraps|in fields and cities|Crows are very clever birds
eagle|fish and small animals|in mountains and near lakes|Eagles can see very far
swan|water plants|on lakes and rivers|Swans have long, white necks
goose|grass and grain|on farms and near lakes|Geese fly in the shape of a V
donkey|grass and hay|on farms|Donkeys can carry heavy loads
camel|dry grass and desert plants|in the desert|A camel can live for many days without water
kangaroo|grass and leaves|in Australia|A mother kangaroo carries her baby in a pouch
koala|eucalyptus leaves|in trees in Australia|Koalas sleep most of the day
panda|bamboo|in the mountains of China|Pandas spend many hours a day eating
zebra|grass|in the grasslands of Africa|Zebras have black and white stripes
giraffe|leaves from tall trees|in the grasslands of Africa|The giraffe is the tallest animal in the world
crocodile|fish and other animals|in rivers and lakes in warm places|Crocodiles have strong jaws
lizard|insects|in warm and dry places|Lizards like to lie in the sun
snake|mice, eggs and frogs|in grass, deserts and forests|Snakes have no legs
bat|insects and fruit|in caves and trees|Bats fly at night and find their way with sound
otter|fish and shellfish|in rivers and near the sea|Otters hold hands when they sleep in water
beaver|bark, twigs and leaves|in rivers and lakes|Beavers build dams from wood
seal|fish|in cold seas and on beaches|Seals have thick fat that keeps them warm
octopus|crabs and shellfish|in the ocean|An octopus has eight arms and three hearts
crab|small sea animals and plants|on beaches and in the sea|Crabs walk sideways
goldfish|fish food and small plants|in ponds and fish tanks|Goldfish can remember things for months
salmon|small fish and insects|in rivers and the ocean|Salmon swim up rivers to lay their eggs
ladybug|tiny insects that harm plants|in gardens and fields|Most ladybugs are red with black spots
dragonfly|small insects|near ponds and rivers|Dragonflies can fly backward
robin|worms, insects and berries|in gardens and forests|A robin has a red chest
sparrow|seeds and insects|in cities and fields|Sparrows live close to people
peacock|seeds, insects and plants|in parks and warm forests|A peacock can open its colorful tail like a fan
turkey|seeds, nuts and insects|in forests and on farms|Turkeys can run fast
rooster|grain, seeds and worms|on farms|A rooster crows early in the morning
puppy|milk and puppy food|in homes with people|A puppy is a young dog
kitten|milk and kitten food|in homes with people|A kitten is a young cat
lamb|milk and grass|on farms|A lamb is a young sheep"""
# thing | what it is | used for
T = """chair|a piece of furniture with a seat and a back|to sit on
table|a piece of furniture with a flat top|to eat, write or work on
bed|a piece of furniture with a soft mattress|to sleep on
lamp|a thing that gives light|to see in the dark
clock|a machine that shows the time|to know what time it is
window|an opening in a wall with glass in it|to let light and air into a room
door|a part of a room that opens and closes|to go in and out
mirror|a piece of glass that shows your image|to look at yourself
spoon|a tool with a small bowl and a handle|to eat soup and other soft food
fork|a tool with a handle and sharp points|to pick up food
knife|a tool with a sharp blade|to cut food and other things
plate|a flat dish|to put food on
cup|a small container with a handle|to drink tea, coffee or water
bottle|a tall container with a narrow neck|to keep water, juice or milk
bag|a soft container with handles|to carry things
box|a container with flat sides|to keep and move things
key|a small piece of metal|to open and close a lock
lock|a thing that keeps a door or box closed|to keep things safe
pen|a tool with ink in it|to write on paper
pencil|a thin stick of wood with graphite in it|to write and draw
paper|a thin sheet made from wood|to write, draw and print on
book|a set of pages with words or pictures|to read stories and learn things
newspaper|a set of pages with the news|to read what happens in the world
letter|a message written on paper|to send words to someone far away
map|a picture of a place seen from above|to find the way
phone|a machine that carries voices and messages|to talk with people who are far away
computer|a machine that works with information|to write, play, learn and work
camera|a machine that takes pictures|to take photos
radio|a machine that plays sounds sent through the air|to listen to music and news
car|a machine with four wheels and an engine|to travel on roads
bus|a big car with many seats|to carry many people along a road
train|a line of wagons on rails|to carry many people over long distances
bicycle|a machine with two wheels and pedals|to ride from place to place
boat|a small vehicle that floats on water|to travel on rivers and lakes
ship|a very large boat|to carry people and goods across the sea
airplane|a machine with wings and engines|to fly through the air
bridge|a structure over a river or a road|to go from one side to the other
house|a building with walls, rooms and a roof|to live in
hammer|a tool with a heavy metal head|to hit nails into wood
nail|a thin, sharp piece of metal|to hold pieces of wood together
saw|a tool with a blade full of teeth|to cut wood
ladder|a tool with steps between two long bars|to climb up and down
rope|a strong, thick string|to tie and pull things
brush|a tool with many short hairs|to clean, paint or tidy hair
soap|a thing that makes bubbles with water|to wash and remove dirt
towel|a soft piece of cloth|to dry your body or your hands
shoe|a thing that covers your foot|to keep your feet safe and warm
hat|a thing that covers your head|to keep off the sun or the cold
coat|a thick piece of clothing|to stay warm outside
scarf|a long piece of cloth for the neck|to keep your neck warm
glove|a piece of clothing for the hand|to keep your hand warm or safe
umbrella|a round roof of cloth on a stick|to stay dry in the rain
button|a small round thing on clothes|to close a shirt or a coat
needle|a very thin, sharp piece of metal|to sew cloth with thread
candle|a stick of wax with a string inside|to give light when it burns
battery|a small thing that stores electricity|to give power to toys, lamps and phones
magnet|a piece of metal that pulls iron|to hold or pick up things made of iron
wheel|a round thing that turns|to help cars and wagons move
bell|a metal thing that rings|to make a sound that people can hear
drum|a round instrument that you hit|to make rhythm in music
piano|a large instrument with black and white keys|to play music
guitar|an instrument with strings|to play music and songs
violin|a small instrument with four strings and a bow|to play music
flute|a thin instrument that you blow|to play soft, high music
ball|a round toy|to throw, kick and catch
kite|a light toy on a long string|to fly in the wind
toy|a thing made for play|to have fun
puzzle|a game with pieces that fit together|to think and have fun
balloon|a thin bag filled with air|to play and to decorate a party
telescope|a tool with lenses in a tube|to look at the moon and the stars
microscope|a tool with strong lenses|to see very small things
thermometer|a tool that measures heat|to know how warm or cold it is
compass|a tool with a needle that points north|to find the right direction
calendar|a list of the days and months of the year|to plan and remember dates
coin|a small, round piece of metal money|to pay for things
refrigerator|a machine that stays cold inside|to keep food fresh
oven|a hot box in the kitchen|to bake bread and cook food
broom|a brush with a long handle|to sweep the floor
bucket|an open container with a handle|to carry water or sand
tent|a small house made of cloth|to sleep outside when you camp
backpack|a bag that you wear on your back|to carry books, food and clothes"""
# nature | is
N = """a river|a long stream of water that flows to a lake or the sea
a lake|a large area of water with land all around it
the sea|a very large area of salt water
the ocean|the huge body of salt water that covers most of the Earth
a mountain|a very high piece of land with steep sides
a hill|a piece of land that is higher than the land around it
a forest|a large area with many trees
a desert|a dry place where very little rain falls
an island|a piece of land with water all around it
a volcano|a mountain that can let out hot melted rock called lava
a cloud|a group of tiny drops of water that floats in the sky
rain|water that falls from the clouds in drops
snow|soft, white ice that falls from the clouds when it is cold
wind|air that moves from one place to another
a storm|very bad weather with strong wind and rain
thunder|the loud sound that comes after lightning
lightning|a bright flash of electricity in the sky
a rainbow|a curved band of colors that we see when the sun shines through rain
the sun|a star that gives light and heat to the Earth
the moon|a round, rocky body that moves around the Earth
a star|a huge ball of hot gas that shines in the sky
a planet|a large round body that moves around a star
a comet|a ball of ice and dust with a bright tail
the sky|the space above us where we see the sun, the clouds and the stars
a tree|a tall plant with a trunk, branches and leaves
a flower|the colorful part of a plant that makes seeds
a leaf|a flat, green part of a plant that catches sunlight
a root|the part of a plant that grows under the ground and takes in water
a seed|a small part of a plant from which a new plant grows
grass|a low, green plant that covers fields and gardens
sand|very small pieces of rock, often found on beaches
soil|the top layer of the ground where plants grow
ice|water that has become hard because it is very cold
fire|heat and light that come from something that burns
water|a clear liquid that all living things need
air|the mix of gases around us that we breathe
fog|a thick cloud that is close to the ground
a valley|a low area of land between hills or mountains
a cave|a large hole in a rock or under the ground
a waterfall|water that falls from a high place
a beach|a flat area of sand or stones next to the sea
a jungle|a thick, warm forest with many plants and animals
spring|the season after winter, when plants begin to grow
summer|the warmest season of the year
autumn|the season after summer, when leaves fall from the trees
winter|the coldest season of the year
an earthquake|a strong shaking of the ground
gravity|the force that pulls things toward the ground
electricity|a kind of energy that gives power to lamps and machines
a shadow|a dark shape that appears when something blocks the light
an echo|a sound that comes back to you after it hits a wall or a mountain
energy|what makes things move, grow, shine or get warm
friction|a force that slows things down when they rub together
time|what we measure with clocks, in seconds, minutes and hours
money|what people use to buy and sell things
music|sounds put together in a way that is nice to hear
a poem|a short piece of writing with feeling and rhythm
a story|a telling of things that happened or were imagined
a friend|a person you like and trust
a promise|something you say you will surely do
a habit|something you do again and again, often without thinking
a dream|a story that your mind makes while you sleep
a library|a place with many books that you can read or borrow
a school|a place where people go to learn
a hospital|a place where sick people get help
a market|a place where people buy and sell things
a bank|a place that keeps money safe
a farm|a place where people grow food and keep animals
a city|a large place where many people live and work
a village|a small place where a few people live
the heart|the part of the body that pushes blood around
the brain|the part of the body that thinks and feels
the stomach|the part of the body where food is broken down
a robot|a machine that can do some work on its own
the internet|a network that connects computers all over the world
a language model|a computer program that reads text and writes the next words
kindness|being friendly and helpful to others
courage|doing the right thing even when you are afraid
patience|being able to wait without getting angry
honesty|telling the truth"""
# job | does
J = """teacher|helps people learn new things at a school
doctor|helps sick people get well
nurse|takes care of sick people and helps doctors
farmer|grows food and takes care of animals
baker|makes bread and cakes
cook|prepares food for people
pilot|flies airplanes
driver|drives a car, a bus or a truck
firefighter|puts out fires and saves people
police officer|keeps people safe and makes sure that laws are followed
builder|builds houses and other buildings
carpenter|makes and repairs things of wood
plumber|repairs water pipes
painter|paints walls or pictures
writer|writes books and stories
singer|sings songs for people
dancer|moves to music for people who watch
actor|plays roles in films and plays
gardener|takes care of plants and gardens
librarian|helps people find books in a library
dentist|takes care of teeth
scientist|studies the world to learn how things work
engineer|plans and builds machines, roads and bridges
sailor|works on a ship
fisherman|catches fish
tailor|makes and repairs clothes
photographer|takes photos
shopkeeper|sells things in a shop
waiter|brings food and drinks to people in a restaurant
judge|decides in a court what is fair under the law
mechanic|repairs cars and machines
astronaut|travels into space
veterinarian|helps sick animals
journalist|finds and tells the news"""
CAP = """France|Paris
Germany|Berlin
Italy|Rome
Spain|Madrid
Portugal|Lisbon
Japan|Tokyo
China|Beijing
Norway|Oslo
Sweden|Stockholm
Finland|Helsinki
Denmark|Copenhagen
Austria|Vienna
Greece|Athens
Ireland|Dublin
Egypt|Cairo
Kenya|Nairobi
Canada|Ottawa
Australia|Canberra
Poland|Warsaw
Hungary|Budapest
Belgium|Brussels
Russia|Moscow
Turkey|Ankara
Peru|Lima
Chile|Santiago
Cuba|Havana
India|New Delhi
Thailand|Bangkok
Vietnam|Hanoi
England|London
the United States|Washington, D.C.
South Korea|Seoul"""
OPP = "big|small hot|cold fast|slow happy|sad up|down open|closed day|night light|dark full|empty long|short old|young rich|poor hard|soft wet|dry clean|dirty high|low early|late near|far loud|quiet strong|weak heavy|light good|bad first|last true|false right|wrong easy|difficult thick|thin sweet|sour brave|afraid begin|end win|lose give|take buy|sell push|pull come|go laugh|cry".split()
sp = lambda t: [l.split("|") for l in t.split("\n")]
A, T, N, J, CAP, OPP = sp(A), sp(T), sp(N), sp(J), sp(CAP), [o.split("|") for o in OPP]
